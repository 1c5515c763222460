"""What a setting costs on a user's own prompts: the quality it loses and the speedup it gives, as estimates over items.

Several samples of one item depend on one another, so every statistic here is over items, never over samples. A setting
is one of several that are tried together; its intervals hold for all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from results.metrics import intervals
from results.metrics.answer_speed import Priced, answer_speedup
from results.metrics.delta import clocked_interval
from results.metrics.intervals import Interval
from results.store.compared import Compared
from results.store.sample import Sample

Pairs = dict[str, tuple[float, float]]
"""Item -> its quality with plain decoding and with the method, both in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number over prompts.

    value     None where it could not be measured
    interval  95% interval for all settings together: the one that decides; None for fewer than two prompts
    alone     95% interval for this setting alone
    """

    value: float | None = None
    interval: Interval | None = None
    alone: Interval | None = None

    def by_itself(self) -> Estimate:
        """The estimate as tables show it, with the interval for this setting alone."""
        return Estimate(self.value, self.alone)


def baseline_right(cells: Sequence[Sequence[Compared]]) -> float | None:
    """How many items plain decoding gets right (the sum of their scores), in the cell where that is most; None where
    nothing has a score."""
    scored = [scores for pairs in cells if (scores := score_pairs(pairs))]
    return max((sum(plain for plain, _ in scores.values()) for scores in scored), default=None)


def fewest_right(limit: float) -> int:
    """Fewest right items for which losing one of them stays within the limit."""
    return math.ceil(round(1 / limit, 9)) if limit else 1


def shows_loss(scores: Sequence[float]) -> bool:
    """Whether a method that got nothing right would be told from one with these scores of its items, in [0, 1]."""
    right = np.asarray(scores, float)
    interval = intervals.difference_interval(right, np.zeros_like(right)) if len(right) else None
    return interval is not None and interval[1] < 0


def quality_measure(right: float | None, limit: float) -> Literal["score", "agreement"]:
    """What quality is measured by: the task's score where plain decoding gets enough right for the limit to mean
    anything, else agreement with plain decoding's own answers. `right` as `baseline_right` gives it."""
    return "agreement" if right is None or right < fewest_right(limit) else "score"


def score_pairs(pairs: Sequence[Compared]) -> Pairs:
    """Scores of plain decoding and of the method, of the items that have both."""
    return _means((pair.sample, pair.baseline.score, pair.sample.score) for pair in _two_cells(pairs)
                  if pair.baseline.score is not None and pair.sample.score is not None)


def score_change(scores: Pairs) -> dict[str, Any]:
    """Accuracy minus the baseline's over the items that have both; None without any."""
    if not scores:
        return {"accuracy_change": None, "accuracy_change_ci95": None}
    base, own = np.array([scores[item] for item in sorted(scores)]).T
    return {
        "accuracy_change": float(own.mean() - base.mean()),
        "accuracy_change_ci95": intervals.difference_interval(base, own),
    }


def agreement(pairs: Sequence[Compared]) -> dict[str, float]:
    """Sample id -> edit similarity to plain decoding's answer, in [0, 1]."""
    return {pair.id: intervals.edit_similarity(pair.sample.output_ids, pair.baseline.output_ids)
            for pair in _two_cells(pairs)}


def agreement_pairs(pairs: Sequence[Compared], exact: Sequence[Sequence[Compared]], greedy: bool) -> Pairs | None:
    """Agreement of lossless methods with plain decoding, and that of the method whose prompts are `pairs`.

    At temperature 0 (`greedy`) a lossless method agrees fully. Above, two samples of one distribution differ, and their
    agreement is measured: the mean over the lossless cells `exact` at the same prompt. None without such a cell."""
    if not greedy and not exact:
        return None
    own, lossless = agreement(pairs), [agreement(cell) for cell in exact]
    ceiling = {name: [1.0] if greedy else [cell[name] for cell in lossless if name in cell] for name in own}
    return _means((pair.sample, float(np.mean(ceiling[pair.id])), own[pair.id]) for pair in _two_cells(pairs)
                  if ceiling[pair.id])


def relative_loss(pairs: Pairs | None, tried: int, best: tuple[float, float] = (0.0, 1.0)) -> Estimate:
    """Share of plain decoding's quality that the method loses, as one of `tried` settings.

    `best` is the pair in which the method does best, see `intervals.loss_intervals`. Without pairs, and where plain
    decoding has no quality to lose, nothing is known."""
    if not pairs or not any(plain for plain, _ in pairs.values()):
        return Estimate()
    reference, own = zip(*(pairs[name] for name in sorted(pairs)), strict=True)
    together, alone = intervals.loss_intervals(reference, own, [intervals.together(tried), intervals.LEVEL], best)
    return Estimate(1 - sum(own) / sum(reference), together, alone)


def speedup_estimate(pairs: Sequence[Compared], pooled: float | None, tried: int) -> tuple[Estimate, int]:
    """The `pooled` speedup as one of `tried` settings, and the number of items that the method answered.

    Tokens and seconds of an item's timed samples are added up."""
    items: dict[str, list[tuple[float, ...]]] = {}
    for pair in _two_cells(pairs):
        arms = items.setdefault(pair.sample.item, [])
        if pair.timed is not None:
            own, base = pair.timed.runs
            arms.append((own.tokens, own.decode_s, base.tokens, base.decode_s))
    sums = [np.sum(items[name], axis=0) for name in sorted(items) if items[name]]
    # An item answered by the token of the prefill alone took no decode time.
    rated = [arms for arms in sums if (arms > 0).all()]
    if len(rated) < 2:
        return Estimate(pooled), len(items)
    columns = np.array(rated).T
    together, alone = (clocked_interval(*columns, level=level)
                       for level in (intervals.together(tried), intervals.LEVEL))
    return Estimate(pooled, together, alone), len(items)


def answer_speed_estimate(pairs: Sequence[Compared], tried: int) -> Estimate:
    """How much sooner answers are complete (`answer_speedup_modelled`), as one of `tried` settings."""
    found = Priced.of(_two_cells(pairs)).estimate(answer_speedup)
    if found is None:
        return Estimate()
    return Estimate(found.value, found.interval(intervals.together(tried)), found.interval())


def _means(values: Iterable[tuple[Sample, float, float]]) -> Pairs:
    """The means over the samples of each item."""
    by_item: dict[str, list[tuple[float, float]]] = {}
    for sample, plain, own in values:
        by_item.setdefault(sample.item, []).append((plain, own))
    return {item: (float(np.mean([plain for plain, _ in pairs])), float(np.mean([own for _, own in pairs])))
            for item, pairs in by_item.items()}


def _two_cells(pairs: Sequence[Compared]) -> list[Compared]:
    """Those that compare two cells: the autoregressive cell is its own baseline."""
    return [pair for pair in pairs if pair.baseline is not pair.sample]
