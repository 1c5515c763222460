"""Which numbers of a column are really apart: paired bootstrap over the common prompts, Holm over
the pairs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from results.metrics.catalog import METRICS
from results.metrics.delta import estimate
from results.metrics.intervals import LEVEL, SEED, Interval, holm, sums_interval
from results.metrics.metric import ByItem, Metric

Floats = NDArray[np.float64]
DRAWS = 1999


def relative(
    name: str, relation: str, items: ByItem, others: ByItem
) -> tuple[float | None, Interval | None]:
    """A metric of one cell over (relation "over"), or minus, that of another, over their common
    items, with its 95% interval: a paired bootstrap over these, and Student's t for what the clock
    said of a few. `items` and `others` as `Summary.by_item` gives them. (None, None) without common
    items and for a ratio to 0."""
    ids, metric = sorted(items.keys() & others.keys()), METRICS[name]
    if not ids:
        return None, None
    statistic, sums = metric.statistic, np.array([[*items[i], *others[i]] for i in ids], float)
    size = sums.shape[1] // 2

    def compared(both: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            here, there = statistic(both[..., :size]), statistic(both[..., size:])
            return np.asarray(here / there if relation == "over" else here - there)

    if metric.estimator.clocked:
        speed = estimate(sums, compared, metric.strata(sums), log=relation == "over")
        return (None, None) if speed is None else (speed.value, speed.timed_interval())
    value = float(compared(sums.sum(0)))
    if not np.isfinite(value):
        return None, None
    interval = sums_interval(sums, compared)
    return value, interval if interval is not None and np.isfinite(interval).all() else None


def best_of(
    name: str, values: Sequence[float | None], items: Sequence[Sequence[ByItem]], better: str | None
) -> list[bool]:
    """Which rows of a column are the best: the leader, and every row that does not differ from it
    significantly in a paired comparison. None is where no row differs.

    values   the rows' numbers; None where there is none
    items    the sums of each row's items, one mapping a column for a mean over columns
    better   "higher" or "lower"; no row is the best without it

    Rows are compared over the items common to all of them (`paired_p_values`). The data choose the
    leader, so Holm's correction is over all pairs of rows; 5% decides."""
    rows = [i for i, value in enumerate(values) if value is not None and all(items[i])]
    none = [False] * len(values)
    if not METRICS[name].compared or better is None or len(rows) < 2:
        return none
    sign = 1.0 if better == "higher" else -1.0
    leader = max(range(len(rows)), key=lambda i: sign * float(values[rows[i]] or 0.0))
    pairs = list(combinations(range(len(rows)), 2))
    p_values = paired_p_values(pairs, [items[i] for i in rows], METRICS[name])
    apart = holm(p_values) <= 1 - LEVEL
    behind = {
        rows[i]
        for pair, is_apart in zip(pairs, apart, strict=True)
        if is_apart and leader in pair
        for i in pair
        if i != leader
    }
    return [i in rows and i not in behind for i in range(len(values))] if behind else none


def paired_p_values(
    pairs: Sequence[tuple[int, int]], rows: Sequence[Sequence[ByItem]], metric: Metric
) -> list[float]:
    """Two-sided p-value of the difference of each pair of rows, mean over columns: Student's t with
    the standard error of a bootstrap over their common items, n − 1 degrees of freedom for n of
    them (of those with a clock, where it has a part in the metric). None is below that of a sign
    test in which all agree, 2 ÷ 2ⁿ: a handful of prompts knows too little of its spread."""
    means, resampled, count = np.zeros(len(rows)), np.zeros((len(rows), DRAWS)), 0
    for column in zip(*rows, strict=True):
        ids = sorted(set.intersection(*(set(items) for items in column)))
        if len(ids) < 2:
            return [1.0] * len(pairs)
        sums = np.array([[items[i] for i in ids] for items in column], float)  # [rows, items, k]
        clocks = min(sum(metric.strata(row)) for row in sums)
        if clocks < 2:
            return [1.0] * len(pairs)
        count += clocks
        drawn = (
            np.random.default_rng(SEED)
            .multinomial(len(ids), np.full(len(ids), 1 / len(ids)), DRAWS)
            .astype(float)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            means += metric.statistic(sums.sum(axis=1))
            resampled += metric.statistic(drawn @ sums) * np.sqrt(clocks / (clocks - 1))
    from scipy.stats import t  # takes half a second, which a dry run should not cost

    least = 2.0 ** (1 - count)
    p_values = []
    for i, j in pairs:
        error = float((resampled[i] - resampled[j]).std(ddof=1))
        difference = abs(float(means[i] - means[j]))
        p = 0.0 if difference else 1.0
        if error > 0:
            p = 2 * float(t.sf(difference / error, count - 1))
        p_values.append(max(p, least) if np.isfinite(p) else 1.0)
    return p_values
