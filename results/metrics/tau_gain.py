"""Where a rule's τ over the lossless rule comes from: relaxation, q_mode, or greedier decoding than asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from results.metrics import intervals

Samples = Sequence[Mapping[str, Any]]
PARTS = {"tau_gain_relaxed": "relaxation", "tau_gain_greedier": "greedier decoding", "tau_gain_q": "q_mode: draft"}
"""The parts of `tau_gain`, which they add up to, as a reader calls them."""
RUNS = ("own", "lossless", "exact", "lossless_greedy")


def gains(runs: Mapping[str, Samples]) -> dict[str, Any]:
    """Differences of τ between samples of one point, each with `_ci95`, a paired bootstrap over the prompts that took a
    cycle in every run and failed in none.

    `runs`: "own" and "lossless"; for the parts also "exact" (own with q_mode exact; own where it has no other) and
    "lossless_greedy" (lossless at temperature 0).

        tau_gain           τ(own) − τ(lossless)
        tau_gain_q         τ(own) − τ(exact)
        tau_gain_greedier  g (τ(lossless_greedy) − τ(lossless)), where g, between 0 and 1, is how far the NLL of `exact`
                           has gone from that of `lossless` to that of `lossless_greedy`
        tau_gain_relaxed   the rest: what no decoder that is merely that much greedier would gain
    """
    counted = {name: {s["id"]: (sum(s["committed"]), len(s["committed"]), s["nll"], len(s["output_ids"]))
                      for s in samples if s.get("committed")} for name, samples in runs.items()}
    ids = sorted(set.intersection(*(set(found) for found in counted.values())))
    if not ids:
        return {}
    arrays = [column for name in runs for column in np.array([counted[name][i] for i in ids], float).T]
    named = {"tau_gain": lambda at: at["own"][0] - at["lossless"][0]}
    if set(RUNS) <= set(runs):
        named |= {"tau_gain_q": lambda at: at["own"][0] - at["exact"][0], "tau_gain_greedier": _greedier,
                  "tau_gain_relaxed": lambda at: at["exact"][0] - at["lossless"][0] - _greedier(at)}
    found: dict[str, Any] = {}
    for name, part in named.items():
        statistic = _of(part, list(runs))
        found[name] = float(statistic(*arrays, axis=-1))
        interval = intervals.paired_interval(arrays, statistic)
        found[f"{name}_ci95"] = None if interval is None else list(interval)
    return found


def _of(part: Callable[[dict[str, tuple]], np.ndarray], names: Sequence[str]) -> Callable[..., np.ndarray]:
    """`part` of each run's (τ, NLL), as a statistic of four numbers a prompt and run: tokens committed, cycles, nats,
    tokens emitted."""
    def statistic(*data: np.ndarray, axis: int) -> np.ndarray:
        sums = [column.sum(axis) for column in data]
        return part({name: (sums[4 * i] / sums[4 * i + 1], sums[4 * i + 2] / sums[4 * i + 3])
                     for i, name in enumerate(names)})

    return statistic


def _greedier(at: dict[str, tuple]) -> np.ndarray:
    """Where the lossless rule's own NLL does not fall with the temperature nothing can be told apart: g is 0."""
    room = at["lossless"][1] - at["lossless_greedy"][1]
    gone = (at["lossless"][1] - at["exact"][1]) / np.where(room > 0, room, np.inf)
    return np.clip(gone, 0, 1) * (at["lossless_greedy"][0] - at["lossless"][0])


def findings(points: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """What the measured points of one task come to: a sentence on each that differs from the lossless rule, and one on
    all that do not. `points`: names and summaries; those without parts are left out."""
    told, alike = [], []
    for name, summary in points:
        interval = summary.get("tau_gain_ci95")
        if interval is None or "tau_gain_relaxed" not in summary:
            continue
        if interval[0] <= 0 <= interval[1]:
            alike.append(f"{name} {_with_interval(summary)}")
        else:
            told.append(_finding(name, summary))
    if alike:
        n = max(summary["n"] for _, summary in points)
        told.append(f"{n} prompts show no difference in τ from the lossless rule for {'; '.join(alike)}.")
    return told


def _finding(name: str, summary: Mapping[str, Any]) -> str:
    parts = {what: summary[part] for part, what in PARTS.items()}
    split = ", ".join(f"{what} {_signed(value)}" for what, value in parts.items())
    most = f", most of it {max(parts, key=parts.__getitem__)}" if summary["tau_gain"] > 0 else ""
    says = (f"{name} {'gains' if summary['tau_gain'] > 0 else 'loses'} τ over the lossless rule, "
            f"{_with_interval(summary)}{most} ({split})")
    own, lossless = summary.get("accuracy"), summary.get("lossless_accuracy")
    return f"{says}." if own is None or lossless is None else f"{says}; accuracy {own:.1%}, lossless {lossless:.1%}."


def _with_interval(summary: Mapping[str, Any]) -> str:
    low, high = summary["tau_gain_ci95"]
    return f"{_signed(summary['tau_gain'])} [{_signed(low)}, {_signed(high)}]"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
