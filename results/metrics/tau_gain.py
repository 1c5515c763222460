"""Where a rule's τ over the lossless rule comes from: relaxation, q_mode, or greedier decoding than asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.metrics import intervals
from results.store.sample import Sample
from results.store.summary import Summary

PARTS = {"tau_gain_relaxed": "relaxation", "tau_gain_greedier": "greedier decoding", "tau_gain_q": "q_mode: draft"}
"""The parts of `tau_gain`, which add up to it, and their names in sentences."""
RUNS = ("own", "lossless", "exact", "lossless_greedy")
TauAndNll = tuple[NDArray[np.float64], NDArray[np.float64]]


def gains(runs: Mapping[str, Sequence[Sample]]) -> dict[str, Any]:
    """Differences of τ between runs of one cell, each with `_ci95`, a paired bootstrap over the prompts that took a
    cycle in every run. Empty where no prompt did.

    `runs`: "own" and "lossless"; for the parts also "exact" (own with q_mode exact; own where it has no other) and
    "lossless_greedy" (lossless at temperature 0).

        tau_gain           τ(own) − τ(lossless)
        tau_gain_q         τ(own) − τ(exact)
        tau_gain_greedier  g (τ(lossless_greedy) − τ(lossless)), where g, between 0 and 1, is how far the NLL of `exact`
                           has gone from that of `lossless` to that of `lossless_greedy`
        tau_gain_relaxed   the rest: what no decoder that is merely that much greedier would gain
    """
    totals = {name: {sample.id: (sum(sample.committed), len(sample.committed), sample.nll, len(sample.output_ids))
                     for sample in samples if sample.committed} for name, samples in runs.items()}
    ids = sorted(set.intersection(*(set(by_id) for by_id in totals.values())))
    if not ids:
        return {}
    arrays = [column for name in runs for column in np.array([totals[name][i] for i in ids], float).T]
    parts: dict[str, Callable[[Mapping[str, TauAndNll]], NDArray[np.float64]]] = {
        "tau_gain": lambda at: at["own"][0] - at["lossless"][0]}
    if set(RUNS) <= set(runs):
        parts |= {"tau_gain_q": lambda at: at["own"][0] - at["exact"][0], "tau_gain_greedier": _greedier,
                  "tau_gain_relaxed": lambda at: at["exact"][0] - at["lossless"][0] - _greedier(at)}
    values: dict[str, Any] = {}
    for name, part in parts.items():
        statistic = _statistic(part, list(runs))
        values[name] = float(statistic(*arrays, axis=-1))
        values[f"{name}_ci95"] = intervals.paired_interval(arrays, statistic)
    return values


def _statistic(part: Callable[[Mapping[str, TauAndNll]], NDArray[np.float64]],
               names: Sequence[str]) -> Callable[..., NDArray[np.float64]]:
    """`part`, a function of each run's (τ, NLL), as a statistic of four numbers per prompt and run: tokens committed,
    cycles, nats, tokens emitted."""
    def statistic(*data: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        sums = [column.sum(axis) for column in data]
        return part({name: (sums[4 * i] / sums[4 * i + 1], sums[4 * i + 2] / sums[4 * i + 3])
                     for i, name in enumerate(names)})

    return statistic


def _greedier(at: Mapping[str, TauAndNll]) -> NDArray[np.float64]:
    """g (τ(lossless_greedy) − τ(lossless)). Where the lossless rule's NLL does not fall with the temperature, the NLL
    tells nothing about greediness and g is 0."""
    room = at["lossless"][1] - at["lossless_greedy"][1]
    gone = (at["lossless"][1] - at["exact"][1]) / np.where(room > 0, room, np.inf)
    return np.asarray(np.clip(gone, 0, 1) * (at["lossless_greedy"][0] - at["lossless"][0]))


def findings(cells: Sequence[tuple[str, Summary]]) -> list[str]:
    """Sentences on the measured cells of one task: one for each that differs from the lossless rule in τ, and one for
    all that do not. `cells`: names and summaries; those without the parts of Δτ are left out."""
    differing, alike = [], []
    for name, summary in cells:
        gain, interval = summary.tau_gain, summary.tau_gain_ci95
        if gain is None or interval is None or summary.tau_gain_relaxed is None:
            continue
        named = f"{_signed(gain)} [{_signed(interval[0])}, {_signed(interval[1])}]"
        if interval[0] <= 0 <= interval[1]:
            alike.append(f"{name} {named}")
        else:
            verb, parts = ("gains", _parts(summary)) if gain > 0 else ("loses", _split(summary))
            differing.append(f"{name} {verb} τ over the lossless rule, {named}{parts}{_accuracies(summary)}.")
    if alike:
        n = max(summary.n for _, summary in cells)
        differing.append(f"{n} prompts show no difference in τ from the lossless rule for {'; '.join(alike)}.")
    return differing


def _split(summary: Summary) -> str:
    return f" ({', '.join(f'{words} {_signed(getattr(summary, part))}' for part, words in PARTS.items())})"


def _parts(summary: Summary) -> str:
    """The largest part of a gain, then all of them."""
    largest = max(PARTS, key=lambda part: float(getattr(summary, part)))
    return f", most of it {PARTS[largest]}{_split(summary)}"


def _accuracies(summary: Summary) -> str:
    if summary.accuracy is None or summary.lossless_accuracy is None:
        return ""
    return f"; accuracy {summary.accuracy:.1%}, lossless {summary.lossless_accuracy:.1%}"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
