"""What the clock said of the timed prompts of a cell. Speeds over all prompts: `results.metrics.answer_speed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.metrics.delta import clocked_interval
from results.store.compared import Compared
from results.store.timed import Timed, TimedRun, batches

Floats = NDArray[np.float64]


def speeds(pairs: Sequence[Compared], autoregressive: bool) -> dict[str, Any]:
    """What the clock said of the timed prompts: pooled tokens/s of both arms, their ratio with a paired interval, the
    share of timed prompts whose tokens equal those of the quality pass, and how many the machine stalled. Intervals are
    over what was timed at once, prompts or whole batches."""
    rows = [pair.timed for pair in pairs if pair.timed is not None]
    own, base = (_timing(runs) for runs in runs_of(rows))
    (tokens, seconds, prefill), (base_tokens, base_seconds, _) = own, base
    rate, base_rate = _ratio(tokens.sum(), seconds.sum()), _ratio(base_tokens.sum(), base_seconds.sum())
    # A prompt answered by the token of the prefill alone took no decode time and has no rate of its own.
    rated = (tokens > 0) & (seconds > 0) & (base_tokens > 0) & (base_seconds > 0)
    arms = tokens[rated], seconds[rated], base_tokens[rated], base_seconds[rated]
    speedup = None if rate is None or base_rate is None else rate / base_rate
    interval, ratios, mean_of_ratios = None, np.array([]), speedup
    if not autoregressive:
        interval = clocked_interval(*arms)
        ratios = (arms[0] / arms[1]) / (arms[2] / arms[3])
        mean_of_ratios = float(np.mean(ratios)) if len(ratios) else None
    lasting = prefill + seconds > 0
    drafted = [pair.sample.committed for pair in pairs if pair.timed is not None]
    return {
        "timed": len(rows),
        "timed_tau": _ratio(sum(map(sum, drafted)), sum(map(len, drafted))),
        "retimed": sum(any(run.repeated for run in row.runs) for row in rows),
        "stalled": sum(any(run.stalled for run in row.runs) for row in rows),
        "repeatable": float(np.mean([row.own.parted is None for row in rows])) if rows else None,
        "tokens_per_s": rate,
        "tokens_per_s_ci95": clocked_interval(arms[0], arms[1]),
        "baseline_tokens_per_s": base_rate,
        "baseline_tokens_per_s_ci95": clocked_interval(arms[2], arms[3]),
        "speedup": speedup,
        "speedup_ci95": interval,
        "speedup_mean_of_ratios": mean_of_ratios,
        "speedup_mean_of_ratios_ci95": clocked_interval(ratios, np.ones_like(ratios)) if len(ratios) else None,
        "e2e_tokens_per_s": _ratio(tokens.sum(), (prefill + seconds).sum()),
        "e2e_tokens_per_s_ci95": clocked_interval(tokens[lasting], (prefill + seconds)[lasting]),
        "prefill_s": float(prefill.sum()),
        "decode_s": float(seconds.sum()),
    }


def runs_of(rows: Sequence[Timed]) -> tuple[list[list[TimedRun]], list[list[TimedRun]]]:
    """The cell's runs and the baseline's, those that were timed at once together."""
    together = batches(rows)
    own, base = ([[row.runs[arm] for row in batch] for batch in together] for arm in (0, 1))
    return own, base


def is_rated(row: Timed) -> bool:
    """Whether both took a cycle on a timed prompt."""
    return all(run.cycles and run.decode_s > 0 for run in row.runs)


def _timing(runs: Sequence[Sequence[TimedRun]]) -> tuple[Floats, Floats, Floats]:
    """Emitted tokens, decode seconds and prefill seconds, each [prompts or batches]."""
    sums = np.array([[sum(run.tokens for run in batch), sum(run.decode_s for run in batch),
                      sum(run.prefill_s for run in batch)] for batch in runs], dtype=float).reshape(-1, 3)
    tokens, seconds, prefill = sums.T
    return tokens, seconds, prefill


def _ratio(a: float, b: float) -> float | None:
    return float(a / b) if b > 0 else None
