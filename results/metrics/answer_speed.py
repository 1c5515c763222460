"""How much sooner an answer is complete: direct on the timed prompts, and modelled over all prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from results.metrics import intervals
from results.metrics.answer_cost import passes_of
from results.metrics.intervals import LEVEL, RESAMPLES, SEED, Interval
from results.metrics.speed import cycle_seconds, rated, runs_of
from results.store.compared import Compared
from results.store.timed import batches

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
CHUNKS = 10
"""Resamples are drawn in so many parts, which bounds the memory."""


class Drawn(NamedTuple):
    """Indices of resampled prompts, each [resamples, n], or all of them once, each [n].

    prompts   of all prompts.
    rated     of the timed prompts on which both took a cycle, those of a batch as one.
    timed     of the timed prompts, those of a batch as one.
    """

    prompts: Indices
    rated: Indices
    timed: Indices


class Priced:
    """The answers of a row: the passes of all prompts, at the times of the timed ones.

    `settings`: prompt id -> the setting that decoded it, where a row mixes several; a cycle of each has its own price.
    """

    def __init__(self, pairs: Sequence[Compared], settings: Mapping[str, str] | None = None) -> None:
        rows = [pair.timed for pair in pairs if pair.timed is not None]
        names, known = settings or {}, sorted(set((settings or {}).values())) or [""]
        self._kinds = [(np.array([names.get(pair.id, "") == kind for pair in pairs]),
                        np.array([names.get(batch[0].id, "") == kind for batch in batches(rated(rows))]))
                       for kind in known]
        self._cycle_s, self._token_s = cycle_seconds(rows)
        self._prefills = [np.array([np.mean([run.prefill_s for run in batch]) for batch in arm])
                          for arm in runs_of(rows)]
        runs = [pair.sample for pair in pairs], [pair.baseline for pair in pairs]
        self._passes = [np.array([passes_of(run) for run in arm], float) for arm in runs]
        self._lengths = [np.array([len(run.output_ids) for run in arm], float) for arm in runs]
        self._committed = np.array([sum(run.committed) for run in runs[0]], float)
        self.sizes = (len(pairs), len(self._cycle_s), len(self._prefills[0]))

    @property
    def is_known(self) -> bool:
        """Whether every setting has a timed prompt."""
        return all(bool(of_rated.any()) for of_prompts, of_rated in self._kinds if of_prompts.any())

    def everything(self) -> Drawn:
        """Every prompt once."""
        return Drawn(*(np.arange(size) for size in self.sizes))

    def resamples(self) -> Iterator[Drawn]:
        """Independent resamples of the prompts of either pass, in parts; equal for rows of equal sizes."""
        rng, size = np.random.default_rng(SEED), RESAMPLES // CHUNKS
        for _ in range(CHUNKS):
            yield Drawn(*(rng.integers(n, size=(size, n)) for n in self.sizes))

    def resampled(self, statistics: Sequence[Callable[[Drawn], Floats]]) -> list[Interval | None]:
        """The 95% intervals of statistics over the same resamples; None for fewer than two prompts in a pass."""
        if min(self.sizes) < 2:
            return [None] * len(statistics)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [[statistic(drawn) for statistic in statistics] for drawn in self.resamples()]
        return [_quantiles(np.concatenate(values)) for values in zip(*parts, strict=True)]

    def answer_speedup(self, at: Drawn) -> Floats:
        """(Σ baseline passes · t_AR + prefills) ÷ (Σ own passes · t_cycle + prefills)."""
        own, base = (np.median(prefill_s[at.timed], axis=-1) for prefill_s in self._prefills)
        return np.asarray((self._base_decode(at) + base) / (self._decode(at) + own))

    def speedup(self, at: Drawn) -> Floats:
        """Σ committed tokens · t_AR ÷ Σ own passes · t_cycle."""
        return np.asarray(self._committed[at.prompts].mean(-1) * self._token(at) / self._decode(at))

    def adjusted_speedup(self, at: Drawn) -> Floats:
        """`speedup` ÷ (Σ own tokens ÷ Σ the baseline's tokens)."""
        own, base = (lengths[at.prompts].mean(-1) for lengths in self._lengths)
        return np.asarray(self.speedup(at) * base / own)

    def _decode(self, at: Drawn) -> Floats:
        """Mean seconds of the passes of an answer."""
        if len(self._kinds) == 1:
            return np.asarray(self._passes[0][at.prompts].mean(-1) * np.median(self._cycle_s[at.rated], axis=-1))
        seconds = np.zeros(())
        for of_prompts, of_rated in self._kinds:
            passes = (self._passes[0] * of_prompts)[at.prompts].mean(-1)
            seconds = seconds + passes * _median_of(self._cycle_s, of_rated, at.rated)
        return seconds

    def _base_decode(self, at: Drawn) -> Floats:
        return np.asarray(self._passes[1][at.prompts].mean(-1) * self._token(at))

    def _token(self, at: Drawn) -> Floats:
        return np.asarray(np.median(self._token_s[at.rated], axis=-1))


def answer_speeds(pairs: Sequence[Compared], autoregressive: bool) -> dict[str, Any]:
    """Seconds of autoregressive decoding over own, prefill included, sum over sum.

    answer_speedup            on the timed prompts, as the clock had it
    answer_speedup_modelled   over all prompts: passes and prefills at their median times in the timed pass. One runaway
                              answer among a dozen timed ones decides the direct number, but not this one
    length_adjusted_speedup   speedup_modelled over length_ratio, without the prefill
    """
    rows = [pair.timed for pair in pairs if pair.timed is not None]
    own, base = (np.array([sum(run.prefill_s + run.decode_s for run in batch) for batch in arm])
                 for arm in runs_of(rows))
    direct = float(base.sum() / own.sum()) if own.sum() > 0 else None
    interval = None if autoregressive else intervals.ratio_interval(base[own > 0], own[own > 0])
    modelled = modelled_answers(pairs)
    if autoregressive:  # the same runs on both sides: 1 by definition
        modelled = {name: None if name.endswith("_ci95") else value for name, value in modelled.items()}
    return {"answer_speedup": direct, "answer_speedup_ci95": interval, **modelled}


def modelled_answers(pairs: Sequence[Compared], settings: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`answer_speedup_modelled` and `length_adjusted_speedup` with their intervals, from independent resamples of the
    prompts of either pass; with `settings`, as `Priced` has them, `speedup_modelled` too. None without a clock."""
    priced = Priced(pairs, settings)
    statistics = {"answer_speedup_modelled": priced.answer_speedup, "length_adjusted_speedup": priced.adjusted_speedup}
    statistics |= {"speedup_modelled": priced.speedup} if settings else {}
    known = {name: priced.is_known and bool(np.isfinite(statistic(priced.everything())))
             for name, statistic in statistics.items()} if priced.sizes[1] else {}
    values: dict[str, Any] = {}
    resampled = priced.resampled(list(statistics.values())) if any(known.values()) else [None] * len(statistics)
    for (name, statistic), interval in zip(statistics.items(), resampled, strict=True):
        is_known = known.get(name, False)
        values[name] = float(statistic(priced.everything())) if is_known else None
        values[f"{name}_ci95"] = interval if is_known else None
    return values


def _quantiles(values: Floats) -> Interval:
    low, high = np.quantile(values[np.isfinite(values)], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _median_of(seconds: Floats, chosen: NDArray[np.bool_], drawn: Indices) -> Floats:
    """Median seconds of the chosen among those drawn; of all chosen where none was drawn."""
    if not chosen.any():
        return np.zeros(())
    of_drawn = np.asarray(chosen[drawn])
    values = np.where(of_drawn, seconds[drawn], np.nan)
    values = np.where(of_drawn.any(-1, keepdims=True), values, np.median(seconds[chosen]))
    return np.asarray(np.nanmedian(values, axis=-1))
