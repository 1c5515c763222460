"""Metrics of a task's scores and of an LLM judge."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from results.metrics.metric import (
    ALONE,
    LEARNED_MILLER,
    RECOVERED,
    WILSON,
    Addends,
    Metric,
    change,
    declared,
)
from results.store.sample import Compared

SIGN_LEVEL, POWER = 0.025, 0.8
"""One-sided level of the sign test, and the probability with which a loss shows."""


def both_scores(pair: Compared) -> Addends:
    """The score, the baseline's, and 1, where both are known."""
    score, base = pair.sample.score, pair.baseline.score
    return None if score is None or base is None else (score, base, 1)


def least_loss(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The loss [] that is seen with a probability of 80%, of sums [3]: items whose scores differ,
    items that the baseline has right, items. NaN where there is none."""
    from scipy.stats import binom  # takes half a second, which a dry run should not cost

    differ, right, n = sums
    churn = differ / n
    counts = np.arange(n + 1)  # of items that differ
    needed = 1 + binom.ppf(1 - SIGN_LEVEL, counts, 0.5)  # of them lost, at least

    def seen(loss: float) -> float:
        lost = churn / 2 + loss
        chances = binom.pmf(counts, n, churn + loss)
        return float(chances @ binom.sf(needed - 1, counts, lost / (churn + loss)))

    low, high = 0.0, min(right / n - churn / 2, 1 - churn)
    if high <= 0 or seen(high) < POWER:
        return np.array(np.nan)
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) >= POWER else (middle, high)
    return np.array(high)


@declared("Accuracy", "%", 1, "higher", is_score=True, by_item=True, compared=True)
def accuracy(pair: Compared) -> Addends:
    """The task's own score. Interval: Wilson for 0-or-1 scores, Student's t over prompts for
    others."""
    return None if pair.sample.score is None else (pair.sample.score, 1)


@declared("Baseline accuracy", "%", 1, None, is_score=True, by_item=True)
def baseline_accuracy(pair: Compared) -> Addends:
    """The task's score of autoregressive decoding."""
    return None if pair.baseline.score is None else (pair.baseline.score, 1)


@declared(
    "Δ accuracy",
    "pp",
    1,
    "higher",
    signed=True,
    statistic=change,
    estimator=LEARNED_MILLER,
    by_item=True,
    relative="change",
    compared=True,
)
def accuracy_change(pair: Compared) -> Addends:
    """Accuracy minus that of autoregressive decoding, over the items that have both. Interval:
    Learned-Miller and Thomas' bound over paired items, which agreement of a few prompts does not
    narrow to nothing."""
    return both_scores(pair)


@declared(
    "Loss it could see",
    "pp",
    1,
    None,
    statistic=least_loss,
    estimator=ALONE,
    every=True,
    relative="change",
)
def accuracy_seen(pair: Compared) -> Addends:
    """The smallest loss of accuracy that as many prompts would show in four of five measurements:
    by an exact sign test at 5%, two-sided (McNemar), if beside the loss as many answers became
    right or wrong by chance as here. Only of scores of 0 or 1; none where a loss of all would not
    show."""
    scores = both_scores(pair)
    if scores is None or not {*scores} <= {0.0, 1.0}:
        return None
    score, base, _ = scores
    return float(score != base), base, 1


@declared("Recovery", "%", 1, "higher", estimator=RECOVERED, by_item=True, relative="ratio")
def recovery(pair: Compared) -> Addends:
    """Accuracy over that of autoregressive decoding under the same decoding settings. Interval:
    bootstrap over paired items."""
    return both_scores(pair)


@declared("Identical outputs", "%", 1, "higher", estimator=WILSON, compared=True)
def precision(pair: Compared) -> Addends:
    """Share of prompts whose output equals the baseline's token for token, under the same settings
    and seed."""
    return pair.sample.output_ids == pair.baseline.output_ids, 1


judge_score = Metric(
    "judge_score",
    "Judge",
    "",
    2,
    "higher",
    "Mean grade of an LLM judge over all turns, 1 to 10. Interval: bootstrap over prompts.",
    judged=True,
)
win_rate = Metric(
    "win_rate",
    "Win rate",
    "%",
    1,
    "higher",
    "Answers that an LLM judge prefers to the reference answer, asked in both orders: a win in "
    "one order and a loss in the other is a tie, and ties count half. Interval: bootstrap over "
    "prompts.",
    judged=True,
)
