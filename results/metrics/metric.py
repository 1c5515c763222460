"""What declares a metric: its print, what a prompt adds to its sums, the statistic of the sums, and
its interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from results.metrics import intervals
from results.metrics.answer_speed import Priced
from results.metrics.delta import estimate, ratio
from results.metrics.intervals import Interval
from results.store.sample import Compared

Floats = NDArray[np.float64]
Addends = tuple[float, ...] | None
"""What a prompt adds to sums; None for a prompt that has nothing to add."""
Statistic = Callable[[Floats], Floats]
"""Sums [..., k] -> the metric [...]."""
Unit = Literal["", "×", "%", "pp", "tok/s", "ms"]
ByItem = Mapping[str, tuple[float, ...]]
"""Item -> the sums that a metric is computed from; samples of one item are added up."""


@dataclass(frozen=True)
class Sums:
    """What the prompts of a cell add to the sums of a metric.

    rows    [prompts, k].
    items   the item that each prompt is a sample of.
    units   the name of what was timed at once with each prompt; its item where it was timed alone.
    timed   whether each prompt was timed.
    whole   whether every prompt of the cell has a row.
    """

    rows: Floats
    items: Sequence[str]
    units: Sequence[str]
    timed: Sequence[bool]
    whole: bool = True

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> Sums:
        """Rows [prompts, k] of which nothing else is asked than an interval."""
        return cls(np.array(rows, float) if rows else np.empty((0, 1)), (), (), ())

    @cached_property
    def total(self) -> Floats:
        """[k]."""
        return np.asarray(self.rows.sum(0))


def by_name(rows: Floats, names: Sequence[str]) -> ByItem:
    """Name -> the sum of its rows."""
    sums: dict[str, Floats] = {}
    for name, row in zip(names, rows, strict=True):
        sums[name] = sums[name] + row if name in sums else row
    return {name: tuple(row.tolist()) for name, row in sums.items()}


def baseline_ratio(sums: Floats) -> Floats:
    """Sum over sum, of the third and the fourth: those of the baseline."""
    return ratio(sums[..., 2:])


def change(sums: Floats) -> Floats:
    """Mean of the first numbers minus that of the second, over the third, which counts them."""
    return np.asarray((sums[..., 0] - sums[..., 1]) / sums[..., 2])


@dataclass(frozen=True)
class Estimator:
    """How a value and its interval are made of sums: the statistic of the totals, and Student's t
    over prompts, on the logarithm where that exists. (A percentile bootstrap of τ holds the truth
    in 91.6% of 16 prompts, this in 94.8%.)

    words     how the interval is made, for the line under a table
    clocked   over what was timed at once
    linear    not on the logarithm
    skewed    an item's effect is that of leaving it out, for what few unlikely answers carry. (The
              NLL of three cells, 16 prompts: 94.1, 93.7 and 96.2% hold the truth, with the delta
              method 92.4, 91.9 and 94.6%.)
    within    what the value cannot be below and above
    """

    words: str = "Student's t over prompts"
    clocked: bool = False
    linear: bool = False
    skewed: bool = False
    within: Interval = (-np.inf, np.inf)

    def known(self, rows: Floats) -> NDArray[np.bool_]:
        """Which prompts [n] of the sums [n, k] count in the interval: those with a denominator, the
        last sum."""
        return np.asarray(rows[:, -1] > 0)

    def value(self, sums: Sums, statistic: Statistic) -> float | None:
        """None where it is not a number."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = float(statistic(sums.total)) if len(sums.rows) else float("nan")
        return value if np.isfinite(value) else None

    def interval(self, sums: Sums, statistic: Statistic) -> Interval | None:
        """At 95%; None where it is not known."""
        rows = sums.rows[self.known(sums.rows)]
        if not len(rows):
            return None
        estimated = None if self.linear else estimate(rows, statistic, skewed=self.skewed)
        if estimated is None and not self.skewed:
            estimated = estimate(rows, statistic, log=False)
        ends = None if estimated is None else estimated.interval()
        if ends is None:
            return None
        return max(self.within[0], ends[0]), min(self.within[1], ends[1])


class Alone(Estimator):
    """A value without an interval."""

    def interval(self, sums: Sums, statistic: Statistic) -> Interval | None:
        return None


class Wilson(Estimator):
    """Of a share: prompts with the event, of all."""

    def interval(self, sums: Sums, statistic: Statistic) -> Interval | None:
        return intervals.proportion_interval(int(sums.total[0]), len(sums.rows))


class Bootstrap(Estimator):
    """Of what other files give: percentiles of a bootstrap over prompts."""

    def interval(self, sums: Sums, statistic: Statistic) -> Interval | None:
        return intervals.sums_interval(sums.rows[self.known(sums.rows)], statistic)


class Recovered(Bootstrap):
    """A ratio of scores: known where the baseline is right on at least ten items; resamples on
    which it never is have none."""

    def interval(self, sums: Sums, statistic: Statistic) -> Interval | None:
        def finite(parts: Floats) -> Floats:
            known = parts[..., 1] > 0
            return np.where(known, parts[..., 0] / np.where(known, parts[..., 1], 1.0), np.inf)

        if (sums.rows[:, 1] > 0).sum() < 10:
            return None
        return intervals.sums_interval(sums.rows, finite)


class LearnedMiller(Estimator):
    """A difference of two numbers in [0, 1] of each prompt, with the bound of
    `intervals.difference_interval`."""

    def interval(self, sums: Sums, statistic: Statistic) -> Interval | None:
        return intervals.difference_interval(sums.rows[:, 1], sums.rows[:, 0])


class LogT(Estimator):
    """Student's t on the logarithm, over what was timed at once: what the clock said of a few
    prompts. Those count that have every sum."""

    def known(self, rows: Floats) -> NDArray[np.bool_]:
        return np.asarray((rows > 0).all(1))

    def interval(self, sums: Sums, statistic: Statistic) -> Interval | None:
        rows = np.array([*by_name(sums.rows, sums.units).values()], float).reshape(
            -1, sums.rows.shape[1]
        )
        rows = rows[self.known(rows)]
        speed = estimate(rows, statistic) if len(rows) else None
        return None if speed is None else speed.timed_interval()


class Delta(Estimator):
    """The delta method on the logarithm of sums of which only timed prompts have some
    (`answer_speed.Priced`)."""

    def known(self, rows: Floats) -> NDArray[np.bool_]:
        return np.ones(len(rows), bool)

    def value(self, sums: Sums, statistic: Statistic) -> float | None:
        speed = self._priced(sums).estimate(statistic)
        return None if speed is None else speed.value

    def interval(self, sums: Sums, statistic: Statistic) -> Interval | None:
        speed = self._priced(sums).estimate(statistic)
        return None if speed is None else speed.timed_interval()

    def _priced(self, sums: Sums) -> Priced:
        return Priced(sums.rows, sums.units, [(timed, "") for timed in sums.timed])


STUDENT, ALONE, WILSON = Estimator(), Alone(), Wilson("Wilson")
SHARE = Estimator(linear=True, within=(0.0, 1.0))
DIVERGENCE = Estimator("Student's t", linear=True, within=(0.0, np.inf))
SKEWED = Estimator("Student's t over prompts left out", skewed=True)
BOOTSTRAP, RECOVERED = (kind("bootstrap over prompts") for kind in (Bootstrap, Recovered))
LEARNED_MILLER = LearnedMiller("Learned-Miller and Thomas")
LOG_T = LogT("Student's t on the log ratio", clocked=True)
DELTA = Delta("delta method on the log ratio", clocked=True)
LOG_SESSIONS = Estimator("Student's t on the log ratio, with the error of the measuring sessions")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a cell.

    name        of the value in a `Summary`; that of its interval has `_ci95` behind it
    label       column or axis title
    unit        unit in print; "%" for a value stored as a fraction, "pp" (percentage points) for a
                difference of such
    digits      decimals in print
    better      the better direction, or None
    definition  what it measures, in one or two sentences
    signed      print a plus sign
    adds        what a prompt adds to its sums; None for a metric that is set by those who know
                other cells or files
    statistic   of the sums
    estimator   of the value and the interval; of a share that of shares, without `adds` a bootstrap
    every       it is only known where every prompt adds to it
    relative    it compares with the baseline: the autoregressive cell has no interval of a "ratio",
                and no "change"
    is_score    it is the task's score: Wilson's interval where that is 0 or 1
    by_item     samples of one item add once, their mean score
    compared    rows can be compared by it, prompt by prompt: bold print, columns relative to
                another cell
    timed       index of the addend that timed prompts alone have, where others add to the metric
                too
    clock       "needed": it is shown of cells with a timed pass; "used": of others too, but the
                clock has a part in it
    judged      an LLM judge gives it
    censored    a length limit censors it
    decides     the verdict on a row stands beside it
    checks      the modelled metric that it checks on the timed prompts
    axis_unit   unit that only axes name
    """

    name: str
    label: str
    unit: Unit
    digits: int
    better: Literal["higher", "lower"] | None
    definition: str
    signed: bool = False
    adds: Callable[[Compared], Addends] | None = None
    statistic: Statistic = ratio
    estimator: Estimator = STUDENT
    every: bool = False
    relative: Literal["", "ratio", "change"] = ""
    is_score: bool = False
    by_item: bool = False
    compared: bool = False
    timed: int | None = None
    clock: Literal["", "needed", "used"] = ""
    judged: bool = False
    censored: bool = False
    decides: bool = False
    checks: str = ""
    axis_unit: str = ""

    def estimated_by(self, proportion: bool) -> Estimator:
        """What makes its interval; `proportion`: whether the task's scores are 0 or 1."""
        if self.is_score and proportion:
            return WILSON
        if self.estimator is not STUDENT:
            return self.estimator
        if self.adds is None:
            return BOOTSTRAP
        return SHARE if self.unit == "%" else STUDENT

    @property
    def axis(self) -> str:
        """Label of a figure's axis, with the unit."""
        unit = self.axis_unit or self.unit
        return f"{self.label} ({unit})" if unit else self.label

    def shown(self, value: float) -> float:
        """Convert a stored value to the printed unit."""
        return 100 * value if self.unit in ("%", "pp") else value

    def strata(self, sums: Floats) -> list[bool]:
        """Whether each item [items, k] has a clock."""
        return [True] * len(sums) if self.timed is None else (sums[:, self.timed] > 0).tolist()


def declared(
    label: str,
    unit: Unit,
    digits: int,
    better: Literal["higher", "lower"] | None,
    **aggregation: Any,
) -> Callable[[Callable[[Compared], Addends]], Metric]:
    """Make the function below a metric: it says what a prompt adds, its name is the metric's, its
    docstring the definition; `aggregation`: the other fields of `Metric`."""

    def of(adds: Callable[[Compared], Addends]) -> Metric:
        name, definition = adds.__name__, " ".join((adds.__doc__ or "").split())
        return Metric(name, label, unit, digits, better, definition, adds=adds, **aggregation)

    return of
