"""Metrics of a task's scores and of an LLM judge."""

from __future__ import annotations

from results.metrics.metric import (
    LEARNED_MILLER,
    RECOVERED,
    WILSON,
    Addends,
    Metric,
    change,
    declared,
)
from results.store.sample import Compared


def both_scores(pair: Compared) -> Addends:
    """The score, the baseline's, and 1, where both are known."""
    score, base = pair.sample.score, pair.baseline.score
    return None if score is None or base is None else (score, base, 1)


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
