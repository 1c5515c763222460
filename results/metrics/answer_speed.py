"""How much sooner an answer is complete: direct on the timed prompts, and modelled over all prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.metrics.answer_cost import passes_of
from results.metrics.delta import Estimate, clocked_interval, estimate
from results.metrics.speed import is_rated, runs_of
from results.store.compared import Compared
from results.store.timed import batches

Floats = NDArray[np.float64]
COMMON = ("prompts", "committed", "tokens", "base_tokens", "base_passes", "base_decode_s", "base_cycles", "timed",
          "prefill_s", "base_prefill_s")
"""What a prompt adds to the sums, in this order. `base_decode_s` and `base_cycles` are of the timed prompts on which
both took a cycle, `timed` and the prefills of all timed ones. Behind these, three for each setting: its passes, and
seconds and cycles of its timed prompts."""


class Priced:
    """The answers of a row as sums over prompts: the passes of all, at the pooled seconds a pass of the timed ones.

    `settings`: prompt id -> the setting that decoded it, where a row mixes several; a cycle of each has its own price.
    """

    def __init__(self, pairs: Sequence[Compared], settings: Mapping[str, str] | None = None) -> None:
        names = settings or {}
        kinds = sorted(set(names.values())) or [""]
        self._rows = np.array([addends(pair, kinds, names.get(pair.id, "")) for pair in pairs], float).reshape(
            len(pairs), len(COMMON) + 3 * len(kinds))
        self._units = unit_names(pairs)
        self._strata = [(pair.timed is not None, names.get(pair.id, "")) for pair in pairs]
        cycles = self._rows[:, len(COMMON) + 2::3]
        of_kind = [{unit for unit, spent in zip(self._units, own, strict=True) if spent} for own in cycles.T]
        used = self._rows[:, len(COMMON)::3].sum(0) > 0
        self.is_known = bool(used.sum()) and all(own for own, is_used in zip(of_kind, used, strict=True) if is_used)
        self._has_spread = all(len(own) > 1 for own, is_used in zip(of_kind, used, strict=True) if is_used)

    def estimate(self, statistic: Callable[[Floats], Floats], beside: Priced | None = None) -> Estimate | None:
        """A statistic of this row; over that of the row `beside` with the same prompts, compared prompt by prompt. None
        without a clock; without an error where a setting has fewer than two timed prompts or batches."""
        rows = [self] if beside is None else [self, beside]
        if not all(row.is_known for row in rows):
            return None
        width = self._rows.shape[1]

        def ratio(sums: Floats) -> Floats:
            own = statistic(sums[..., :width])
            return own if beside is None else np.asarray(own / statistic(sums[..., width:]))

        units = min((row._units for row in rows), key=lambda names: len(set(names)))  # batches, where one has them
        index = {name: i for i, name in enumerate(dict.fromkeys(units))}
        columns = np.hstack([row._rows for row in rows])
        sums, strata = np.zeros((len(index), columns.shape[1])), [tuple[tuple[bool, str], ...]()] * len(index)
        for i, unit in enumerate(units):
            sums[index[unit]] += columns[i]
            strata[index[unit]] = max(strata[index[unit]], tuple(row._strata[i] for row in rows))
        found = estimate(sums, ratio, strata)
        if found is None or all(row._has_spread for row in rows):
            return found
        return Estimate(found.value, None, 0.0)


def unit_names(pairs: Sequence[Compared]) -> list[str]:
    """The observation that each prompt belongs to: samples of one item are one, and so are prompts timed at once."""
    names = {pair.id: pair.sample.item for pair in pairs}
    for batch in batches(pair.timed for pair in pairs if pair.timed is not None):
        if len(batch) > 1:
            names |= dict.fromkeys((row.id for row in batch), " + ".join(row.id for row in batch))
    return [names[pair.id] for pair in pairs]


def addends(pair: Compared, kinds: Sequence[str], own_kind: str) -> list[float]:
    own, base, clock = pair.sample, pair.baseline, pair.timed
    passes = float(passes_of(own))
    own_spent = base_spent = (0.0, 0.0)
    prefills = [0.0, 0.0, 0.0]
    if clock is not None:
        prefills = [1.0, *(run.prefill_s for run in clock.runs)]
        if is_rated(clock):
            own_spent, base_spent = ((run.decode_s, float(run.cycles)) for run in clock.runs)
    common = [1.0, float(sum(own.committed)), float(len(own.output_ids)), float(len(base.output_ids)),
              float(passes_of(base)), *base_spent, *prefills]
    for kind in kinds:
        common += [passes, *own_spent] if kind == own_kind else [0.0, 0.0, 0.0]
    return common


def _column(sums: Floats, name: str) -> Floats:
    return np.asarray(sums[..., COMMON.index(name)])


def _decode(sums: Floats) -> Floats:
    """Seconds of the passes of all answers."""
    passes, seconds, cycles = (sums[..., len(COMMON) + part::3] for part in range(3))
    return np.asarray((passes * np.divide(seconds, cycles, out=np.zeros_like(seconds), where=cycles > 0)).sum(-1))


def _token(sums: Floats) -> Floats:
    """Seconds of an autoregressive token."""
    return np.asarray(_column(sums, "base_decode_s") / _column(sums, "base_cycles"))


def answer_speedup(sums: Floats) -> Floats:
    """(Σ baseline passes · t_AR + prefills) ÷ (Σ own passes · t_cycle + prefills)."""
    return _answer_speedup(sums, _decode(sums))


def equal_length_speedup(sums: Floats) -> Floats:
    """`answer_speedup` if the own answers were as long as the baseline's. Lossless methods are compared by it: their
    answers have one distribution, so that a difference in length is chance."""
    return _answer_speedup(sums, _decode(sums) * _column(sums, "base_tokens") / _column(sums, "tokens"))


def _answer_speedup(sums: Floats, decode: Floats) -> Floats:
    own, base = (_column(sums, f"{arm}prefill_s") * _column(sums, "prompts") / _column(sums, "timed")
                 for arm in ("", "base_"))
    return np.asarray((_column(sums, "base_passes") * _token(sums) + base) / (decode + own))


def token_speedup(sums: Floats) -> Floats:
    """Σ committed tokens · t_AR ÷ Σ own passes · t_cycle: τ · t_AR ÷ t_cycle."""
    return np.asarray(_column(sums, "committed") * _token(sums) / _decode(sums))


def adjusted_speedup(sums: Floats) -> Floats:
    """`token_speedup` ÷ (Σ own tokens ÷ Σ the baseline's tokens)."""
    return np.asarray(token_speedup(sums) * _column(sums, "base_tokens") / _column(sums, "tokens"))


MODELLED = {"answer_speedup_modelled": answer_speedup, "speedup_modelled": token_speedup,
            "length_adjusted_speedup": adjusted_speedup}
"""Metric -> its statistic of the sums of `Priced`."""


def answer_speeds(pairs: Sequence[Compared], autoregressive: bool) -> dict[str, Any]:
    """Seconds of autoregressive decoding over own, prefill included, sum over sum.

    answer_speedup            on the timed prompts, as the clock had it
    …                         over all prompts, as `modelled_speeds` has them
    token_ms, timed_cycle_ms  milliseconds of an autoregressive token and of a cycle, pooled over the timed prompts
    """
    rows = [pair.timed for pair in pairs if pair.timed is not None]
    own, base = (np.array([sum(run.prefill_s + run.decode_s for run in batch) for batch in arm])
                 for arm in runs_of(rows))
    direct = float(base.sum() / own.sum()) if own.sum() > 0 else None
    interval = None if autoregressive else clocked_interval(base[own > 0], own[own > 0])
    modelled = modelled_speeds(pairs)
    if autoregressive:  # the same runs on both sides: 1 by definition
        modelled = {name: value if value is None else None if name.endswith("_ci95") else 1.0
                    for name, value in modelled.items()}
    return {"answer_speedup": direct, "answer_speedup_ci95": interval, **modelled, **_pass_times(pairs)}


def _pass_times(pairs: Sequence[Compared]) -> dict[str, Any]:
    rated = [pair.timed.runs for pair in pairs if pair.timed is not None and is_rated(pair.timed)]
    times = {}
    for name, runs in zip(("timed_cycle_ms", "token_ms"), zip(*rated, strict=True) if rated else ((), ()), strict=True):
        times[name] = 1e3 * sum(run.decode_s for run in runs) / sum(run.cycles for run in runs) if runs else None
    return times


def modelled_speeds(pairs: Sequence[Compared], settings: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The metrics of `MODELLED` with their intervals: passes and prefills of all prompts, at the pooled seconds of the
    timed ones. One runaway answer among a dozen timed ones decides a direct number, but none of these. `settings`: as
    `Priced` has them. None without a clock."""
    priced, values = Priced(pairs, settings), dict[str, Any]()
    for name, statistic in MODELLED.items():
        found = priced.estimate(statistic)
        values[name] = None if found is None else found.value
        values[f"{name}_ci95"] = None if found is None else found.interval()
    return values


def modelled_value(pairs: Sequence[Compared], statistic: Callable[[Floats], Floats],
                   settings: Mapping[str, str] | None = None) -> float | None:
    """One statistic alone; None without a clock or a cycle. `settings`: as `Priced` has them."""
    found = Priced(pairs, settings).estimate(statistic)
    return None if found is None else found.value
