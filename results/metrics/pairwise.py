"""Two cells on the same prompts: who answers what rightly, and paired differences of length, time and likelihood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.metrics import intervals
from results.metrics.delta import estimate, ratio
from results.store.compared import Compared
from results.store.sample import Sample
from results.store.timed import Timed, TimedRun

Floats = NDArray[np.float64]
Pairs = dict[str, tuple[float, float]]
"""Item -> its score with plain decoding and with the method, both in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean over prompts of right minus left, with its 95% interval (Student's t; None for one prompt).

    n   prompts that have the number in both cells
    """

    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two cells, left and right.

    lost     prompts that the left one alone answers rightly; None where a score is neither 0 nor 1
    won      prompts that the right one alone answers rightly
    p        of McNemar's exact two-sided test
    tokens   emitted tokens of an answer
    seconds  seconds of an answer, prefill included, of prompts that one session timed in both cells
    nll      nats of an emitted token under the target
    """

    lost: int | None
    won: int | None
    p: float | None
    tokens: Difference | None
    seconds: Difference | None
    nll: Difference | None


@dataclass(frozen=True, slots=True)
class Answers:
    """What a comparison needs of a cell.

    samples      prompt id -> sample
    timed        prompt id -> what the clock said
    is_baseline  it is the autoregressive baseline of the cells that it is compared with
    """

    samples: Mapping[str, Sample]
    timed: Mapping[str, Timed]
    is_baseline: bool = False


def compare_cells(left: Answers, right: Answers) -> Comparison:
    """The comparison over the prompts that both cells answered."""
    ids = [i for i in left.samples if i in right.samples]
    pairs = [(left.samples[i], right.samples[i]) for i in ids]
    scores = np.array([(a.score, b.score) for a, b in pairs if None not in (a.score, b.score)], float).reshape(-1, 2)
    lost = won = p = None
    if len(scores) and np.isin(scores, (0, 1)).all():
        lost, won = int((scores[:, 0] > scores[:, 1]).sum()), int((scores[:, 0] < scores[:, 1]).sum())
        p = mcnemar_of(lost, won)
    return Comparison(
        lost, won, p, difference([(len(a.output_ids), len(b.output_ids)) for a, b in pairs]),
        difference(_clocks(left, right)),
        difference([(a.nll / len(a.output_ids), b.nll / len(b.output_ids)) for a, b in pairs
                    if a.nll is not None and b.nll is not None and a.output_ids and b.output_ids]))


@cache
def mcnemar_of(lost: int, won: int) -> float:
    """p-value of the exact two-sided McNemar test from the prompts on which the cells disagree."""
    from statsmodels.stats.contingency_tables import mcnemar  # takes a second, which a dry run should not cost

    return float(min(1.0, mcnemar([[0, lost], [won, 0]], exact=True).pvalue))


def difference(pairs: Sequence[tuple[float, float]]) -> Difference | None:
    """Of (left, right) of each prompt; None without prompts."""
    changes = [(right - left, 1.0) for left, right in pairs]
    found = estimate(changes, ratio, log=False) if changes else None
    if found is None:
        return None
    low, high = found.interval() or (None, None)
    return Difference(found.value, low, high, len(changes))


def _clocks(left: Answers, right: Answers) -> list[tuple[float, float]]:
    """Seconds of each prompt that both cells timed. The baseline of a cell was timed beside it; two other
    cells compare where one session timed both."""
    if left.is_baseline or right.is_baseline:
        arms = [timed.runs for timed in (right if left.is_baseline else left).timed.values()]
        pairs = [(_whole(base), _whole(own)) for own, base in arms]
        return pairs if left.is_baseline else [(own, base) for base, own in pairs]
    both = [(row, right.timed[i]) for i, row in left.timed.items() if i in right.timed]
    return [(_whole(a.own), _whole(b.own)) for a, b in both if _session(a) == _session(b)]


def _session(timed: Timed) -> tuple[str, str, str]:
    return timed.started, timed.host, timed.boot


def _whole(run: TimedRun) -> float:
    return run.prefill_s + run.decode_s


def score_pairs(pairs: Sequence[Compared]) -> Pairs:
    """Scores of plain decoding and of the method, of the items that have both: means over the samples of each item. The
    autoregressive cell, which is its own baseline, has none."""
    by_item: dict[str, list[tuple[float, float]]] = {}
    for pair in pairs:
        plain, own = pair.baseline.score, pair.sample.score
        if pair.baseline is not pair.sample and plain is not None and own is not None:
            by_item.setdefault(pair.sample.item, []).append((plain, own))
    return {item: (float(plain), float(own)) for item, scores in by_item.items() for plain, own in [np.mean(scores, 0)]}


def score_change(scores: Pairs) -> dict[str, Any]:
    """Accuracy minus the baseline's over the items that have both; None without any."""
    if not scores:
        return {"accuracy_change": None, "accuracy_change_ci95": None}
    base, own = np.array([scores[item] for item in sorted(scores)]).T
    return {
        "accuracy_change": float(own.mean() - base.mean()),
        "accuracy_change_ci95": intervals.difference_interval(base, own),
    }
