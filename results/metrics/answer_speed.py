"""How much sooner an answer is complete: direct on the timed prompts, and modelled over all prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.metrics import intervals
from results.metrics.answer_cost import passes_of
from results.metrics.intervals import LEVEL, RESAMPLES, SEED, Interval
from results.metrics.speed import cycle_seconds
from results.store.compared import Compared
from results.store.timed import Timed

Floats = NDArray[np.float64]
CHUNKS = 10
"""Resamples are drawn in so many parts, which bounds the memory."""


def answer_speeds(pairs: Sequence[Compared], autoregressive: bool) -> dict[str, Any]:
    """Seconds of autoregressive decoding over own, prefill included, sum over sum.

    answer_speedup            on the timed prompts, as the clock had it
    answer_speedup_modelled   over all prompts: passes and prefills at their median times in the timed pass. One runaway
                              answer among a dozen timed ones decides the direct number, but not this one
    """
    rows = [pair.timed for pair in pairs if pair.timed is not None]
    own, base = (np.array([run.prefill_s + run.decode_s for run in arm]) for arm in _arms(rows))
    modelled, interval = _modelled(pairs, rows)
    direct = float(base.sum() / own.sum()) if own.sum() > 0 else None
    if autoregressive:  # the same runs on both sides: 1 by definition
        return {"answer_speedup": direct, "answer_speedup_ci95": None, "answer_speedup_modelled": modelled,
                "answer_speedup_modelled_ci95": None}
    return {"answer_speedup": direct, "answer_speedup_ci95": intervals.ratio_interval(base[own > 0], own[own > 0]),
            "answer_speedup_modelled": modelled, "answer_speedup_modelled_ci95": interval}


def _modelled(pairs: Sequence[Compared], rows: Sequence[Timed]) -> tuple[float | None, Interval | None]:
    """(Σ baseline passes · t_AR + prefills) ÷ (Σ own passes · t_cycle + prefills), and its interval, from independent
    resamples of the prompts of either pass."""
    cycle_s, token_s = cycle_seconds(rows)
    own_prefill, base_prefill = (np.array([run.prefill_s for run in arm]) for arm in _arms(rows))
    if not len(cycle_s):
        return None, None
    own, base = (np.array([passes_of(run) for run in runs], float) for runs in
                 ([pair.sample for pair in pairs], [pair.baseline for pair in pairs]))

    def cost(passes: Floats, pass_s: Floats, prefill_s: Floats) -> Floats:
        """Mean seconds of an answer; the prompts and the timed prompts of a resample lie on the last axis."""
        return np.asarray(passes.mean(-1) * np.median(pass_s, axis=-1) + np.median(prefill_s, axis=-1))

    value = float(cost(base, token_s, base_prefill) / cost(own, cycle_s, own_prefill))
    if min(len(pairs), len(cycle_s)) < 2:
        return value, None
    rng, ratios, size = np.random.default_rng(SEED), [], RESAMPLES // CHUNKS
    for _ in range(CHUNKS):
        of_all, of_rated, of_timed = (rng.integers(n, size=(size, n)) for n in (len(pairs), len(cycle_s), len(rows)))
        ratios.append(cost(base[of_all], token_s[of_rated], base_prefill[of_timed])
                      / cost(own[of_all], cycle_s[of_rated], own_prefill[of_timed]))
    low, high = np.quantile(np.concatenate(ratios), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return value, (float(low), float(high))


def _arms(rows: Sequence[Timed]) -> tuple[list[Any], list[Any]]:
    return [row.arms[0] for row in rows], [row.arms[1] for row in rows]
