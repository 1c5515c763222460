"""Which numbers of a column are really apart: paired bootstrap over the common prompts, Holm over the pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from results.metrics.answer_cost import is_capped, loops, passes_of
from results.metrics.answer_speed import COMMON, MODELLED, addends, unit_names
from results.metrics.delta import estimate
from results.metrics.intervals import LEVEL, SEED, Interval, edit_similarity, paired_interval
from results.store.compared import Compared
from results.store.sample import Sample
from results.store.timed import TimedRun

Floats = NDArray[np.float64]
DRAWS = 1999
ByItem = Mapping[str, tuple[float, ...]]
"""Item -> the sums that a metric is computed from; samples of one item are added up."""


Addends = tuple[float, ...] | None


class Paired(NamedTuple):
    """A metric as a statistic of sums over items.

    of         the addends of one prompt; None where it has none
    statistic  sums [..., k] -> metric [...]
    clocked    it is what the clock said
    timed      index of the addend that timed prompts alone have, where others add to the metric too
    """

    of: Callable[[Compared], Addends]
    statistic: Callable[[Floats], Floats]
    clocked: bool = False
    timed: int | None = None

    def strata(self, sums: Floats) -> list[bool]:
        """Whether each item [items, k] has a clock."""
        return [True] * len(sums) if self.timed is None else (sums[:, self.timed] > 0).tolist()


def _ratio(sums: Floats) -> Floats:
    return sums[..., 0] / sums[..., 1]


def _double_ratio(sums: Floats) -> Floats:
    return (sums[..., 0] / sums[..., 1]) / (sums[..., 2] / sums[..., 3])


def _answers(of: Callable[[Sample, Sample], Addends]) -> Paired:
    """A ratio of sums over what both decoded."""
    return Paired(lambda pair: of(pair.sample, pair.baseline), _ratio)


def _share(event: Callable[[Sample, Sample], bool]) -> Paired:
    return _answers(lambda own, base: (float(event(own, base)), 1.0))


def _clocks(of: Callable[[TimedRun, TimedRun], Addends], statistic: Callable[[Floats], Floats]) -> Paired:
    """A statistic of what the clock said of both, for timed prompts."""
    return Paired(lambda pair: None if pair.timed is None else of(*pair.timed.runs), statistic, clocked=True)


PAIRED: Mapping[str, Paired] = {
    "tau": _answers(lambda own, base: (sum(own.committed), len(own.committed)) if own.committed else None),
    "accept_len": _answers(lambda own, base: (sum(own.accepted), len(own.accepted)) if own.accepted else None),
    "tokens_per_s": _clocks(lambda own, base: (own.tokens, own.decode_s) if own.decode_s else None, _ratio),
    "e2e_tokens_per_s": _clocks(lambda own, base: (own.tokens, own.prefill_s + own.decode_s), _ratio),
    "speedup": _clocks(lambda own, base: (own.tokens, own.decode_s, base.tokens, base.decode_s)
                       if own.decode_s and base.decode_s else None, _double_ratio),
    "answer_speedup": _clocks(lambda own, base: (base.prefill_s + base.decode_s, own.prefill_s + own.decode_s), _ratio),
    **{name: Paired(lambda pair: tuple(addends(pair, [""], "")), statistic, True, COMMON.index("timed"))
       for name, statistic in MODELLED.items()},
    "accuracy": _answers(lambda own, base: None if own.score is None else (own.score, 1.0)),
    "accuracy_change": _answers(lambda own, base: None if own.score is None or base.score is None else
                                (own.score - base.score, 1.0)),
    "precision": _share(lambda own, base: own.output_ids == base.output_ids),
    "edit_similarity": _answers(lambda own, base: (edit_similarity(own.output_ids, base.output_ids), 1.0)),
    "pass_ratio": _answers(lambda own, base: (passes_of(base), passes_of(own)) if passes_of(own) else None),
    "cap_hit_share": _share(lambda own, base: is_capped(own)),
    "loop_share": _share(lambda own, base: loops(own)),
    "no_answer_share": _answers(lambda own, base: None if own.score is None else (float(own.answer is None), 1.0)),
}
"""The metrics that rows can be compared by."""


def by_item(name: str, pairs: Sequence[Compared]) -> ByItem:
    """The sums of each item that a metric is computed from; empty for a metric that rows cannot be compared by. Of what
    the clock said, prompts that were timed at once are one item."""
    if name not in PAIRED:
        return {}
    items = unit_names(pairs) if PAIRED[name].clocked else [pair.sample.item for pair in pairs]
    sums: dict[str, tuple[float, ...]] = {}
    for pair, item in zip(pairs, items, strict=True):
        added = PAIRED[name].of(pair)
        if added is not None:
            held = sums.get(item, (0.0,) * len(added))
            sums[item] = tuple(a + b for a, b in zip(held, added, strict=True))
    return sums


def relative(name: str, relation: str, own: ByItem, other: ByItem) -> tuple[float | None, Interval | None]:
    """A metric of one cell over (relation "over"), or minus, that of another, over their common items, with its 95%
    interval: a paired bootstrap over these, and Student's t for what the clock said of a few. `own` and `other` as
    `by_item` gives them. (None, None) without common items and for a ratio to 0."""
    ids, paired = sorted(own.keys() & other.keys()), PAIRED[name]
    if not ids:
        return None, None
    statistic, sums = paired.statistic, np.array([[*own[i], *other[i]] for i in ids], float)
    size = sums.shape[1] // 2

    def compared(both: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            here, there = statistic(both[..., :size]), statistic(both[..., size:])
            return np.asarray(here / there if relation == "over" else here - there)

    if paired.clocked:
        found = estimate(sums, compared, paired.strata(sums), log=relation == "over")
        return (None, None) if found is None else (found.value, found.interval())
    value = float(compared(sums.sum(0)))
    if not np.isfinite(value):
        return None, None
    interval = paired_interval(tuple(sums.T), lambda *parts, axis: compared(
        np.stack([part.sum(axis) for part in parts], axis=-1)))
    return value, interval if interval is not None and np.isfinite(interval).all() else None


def best_of(name: str, values: Sequence[float | None], items: Sequence[Sequence[ByItem]],
            better: str | None) -> list[bool]:
    """Which rows of a column are the best: the leader, and every row that does not differ from it
    significantly in a paired comparison. None is where no row differs.

    values   the rows' numbers; None where there is none
    items    the sums of each row's items, one mapping a column for a mean over columns
    better   "higher" or "lower"; no row is the best without it

    Rows are compared over the items common to all of them (`paired_p_values`). The data choose the leader, so Holm's
    correction is over all pairs of rows; 5% decides."""
    rows = [i for i, value in enumerate(values) if value is not None and all(items[i])]
    none = [False] * len(values)
    if name not in PAIRED or better is None or len(rows) < 2:
        return none
    sign = 1.0 if better == "higher" else -1.0
    leader = max(range(len(rows)), key=lambda i: sign * float(values[rows[i]] or 0.0))
    pairs = list(combinations(range(len(rows)), 2))
    p_values = paired_p_values(pairs, [items[i] for i in rows], PAIRED[name])
    apart = holm(p_values) <= 1 - LEVEL
    behind = {rows[i] for pair, is_apart in zip(pairs, apart, strict=True) if is_apart and leader in pair
              for i in pair if i != leader}
    return [i in rows and i not in behind for i in range(len(values))] if behind else none


def holm(p_values: Sequence[float]) -> Floats:
    """p-values corrected by Holm's method, in the given order. (That of statsmodels collects garbage at every call,
    which takes half a second beside loaded models.)"""
    order = np.argsort(p_values)
    corrected = np.empty(len(order))
    corrected[order] = np.maximum.accumulate(np.asarray(p_values)[order] * np.arange(len(order), 0, -1))
    return np.minimum(corrected, 1.0)


def paired_p_values(pairs: Sequence[tuple[int, int]], rows: Sequence[Sequence[ByItem]],
                    paired: Paired) -> list[float]:
    """Two-sided p-value of the difference of each pair of rows, mean over columns: Student's t with the standard error
    of a bootstrap over their common items, n − 1 degrees of freedom for n of them (of those with a clock, where it has
    a part in the metric). None is below that of a sign test in which all
    agree, 2 ÷ 2ⁿ: a handful of prompts knows too little of its spread."""
    means, resampled, count = np.zeros(len(rows)), np.zeros((len(rows), DRAWS)), 0
    for column in zip(*rows, strict=True):
        ids = sorted(set.intersection(*(set(items) for items in column)))
        if len(ids) < 2:
            return [1.0] * len(pairs)
        sums = np.array([[items[i] for i in ids] for items in column], float)  # [rows, items, k]
        clocks = min(sum(paired.strata(row)) for row in sums)
        if clocks < 2:
            return [1.0] * len(pairs)
        count += clocks
        drawn = np.random.default_rng(SEED).multinomial(len(ids), np.full(len(ids), 1 / len(ids)), DRAWS).astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            means += paired.statistic(sums.sum(axis=1))
            resampled += paired.statistic(drawn @ sums) * np.sqrt(clocks / (clocks - 1))
    from scipy.stats import t  # takes half a second, which a dry run should not cost

    least = 2.0 ** (1 - count)
    p_values = []
    for i, j in pairs:
        error, difference = float((resampled[i] - resampled[j]).std(ddof=1)), abs(float(means[i] - means[j]))
        p = 2 * float(t.sf(difference / error, count - 1)) if error > 0 else 1.0 if difference == 0 else 0.0
        p_values.append(max(p, least) if np.isfinite(p) else 1.0)
    return p_values
