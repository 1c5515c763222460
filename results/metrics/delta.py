"""Statistics of sums over prompts of which only some were timed: standard error by the delta
method.

A statistic such as the modelled speedup joins sums over all prompts (target passes) with sums over
the timed ones (seconds a pass). What an item adds to both moves the statistic together, so its
error is that of the items' total effects: those of timed and of other items are two strata, whose
variances add (Welch and Satterthwaite give the degrees of freedom). A ratio of two rows over the
same items is one such statistic, so it is compared item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.metrics.intervals import LEVEL, Interval
from results.store.sample import Timed, is_rated

Floats = NDArray[np.float64]
STEP = 1e-5
"""Relative change of an item's weight by which its effect is measured."""
LEAST_FREEDOM = 2
ROUNDING = 1e-9
"""What rounding makes of no error, the step considered."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic with its standard error, on the scale of `log`: the logarithm's where that is
    true.

    error    None where an item's effect is not known
    freedom  degrees of freedom of the error
    """

    value: float
    error: float | None
    freedom: float
    log: bool = True

    @property
    def at(self) -> float:
        """The value on the scale of the error."""
        return float(np.log(self.value)) if self.log else self.value

    def interval(self, level: float = LEVEL) -> Interval | None:
        """Student's t on the scale of the error. None without an error."""
        if self.error is None:
            return None
        if not self.error:
            return self.value, self.value
        from scipy.stats import t  # takes half a second, which a dry run should not cost

        half = float(t.ppf((1 + level) / 2, self.freedom)) * self.error
        ends = self.at - half, self.at + half
        return (float(np.exp(ends[0])), float(np.exp(ends[1]))) if self.log else ends

    def timed_interval(self) -> Interval | None:
        """The interval of a clock's ratio, which a few prompts decide: None below 2 degrees of
        freedom, where it would span orders of magnitude."""
        return self.interval() if self.freedom >= LEAST_FREEDOM else None

    def p_above(self, limit: float) -> float:
        """One-sided p-value of "the truth is at most `limit`": small where it is shown to be above.
        1 without an error."""
        if self.error is None:
            return 1.0
        from scipy.stats import t  # as above

        room = self.at - (float(np.log(limit)) if self.log else limit)
        if self.error == 0:
            return 0.0 if room > 0 else 1.0
        return float(t.sf(room / self.error, self.freedom))


def estimate(
    sums: ArrayLike,
    statistic: Callable[[Floats], Floats],
    strata: Sequence[object] | None = None,
    *,
    log: bool = True,
    skewed: bool = False,
) -> Estimate | None:
    """The statistic of the summed rows, and its error.

    sums       [items, k]: what each item adds to the sums
    statistic  sums [..., k] -> statistic [...]
    strata     a label for each item; one stratum without them. A stratum of one item joins the
               largest other one.
    skewed     an item's effect is that of leaving it out, from which one of much weight does not
               hide (HC3, MacKinnon and White 1985), and outliers lower the degrees of freedom; for
               one stratum

    None where the statistic is not finite or, with `log`, not above 0. The error is None for fewer
    than two items."""
    rows = np.asarray(sums, float)
    total = rows.sum(0)

    def scaled(values: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.asarray(statistic(values), float)
            return np.log(found) if log else found

    if not np.isfinite(scaled(total)):
        return None
    value = float(statistic(total))
    if len(rows) < 2:
        return Estimate(value, None, 0.0, log)
    effects = (
        scaled(total) - scaled(total - rows)
        if skewed
        else (scaled(total + STEP * rows) - scaled(total - STEP * rows)) / (2 * STEP)
    )
    variances, freedoms = [], list[float]()
    for of_stratum in _members(np.zeros(len(rows)) if strata is None else strata):
        own = effects[of_stratum]
        variances.append(len(own) * float(own.var(ddof=1)))
        freedoms.append(_freedom(own) if skewed else len(own) - 1)
    whole = sum(variances)
    if not np.isfinite(whole):
        return Estimate(value, None, 0.0, log)
    if np.sqrt(whole) < ROUNDING * (1.0 if log else max(1.0, abs(value))):  # all items agree
        return Estimate(value, 0.0, float(sum(freedoms)), log)
    freedom = whole**2 / sum(one**2 / free for one, free in zip(variances, freedoms, strict=True))
    return Estimate(value, float(np.sqrt(whole)), freedom, log)


def _freedom(effects: Floats) -> float:
    """Of a sample variance, twice its square over its own variance, which grows with the
    kurtosis."""
    n, apart = len(effects), (effects - effects.mean()) ** 2
    if not (spread := apart.mean()):
        return n - 1
    excess = (apart**2).mean() / spread**2 - (n - 3) / (n - 1)
    return float(np.clip(2 * n / excess, 1, n - 1)) if excess > 0 else n - 1


def _members(strata: Sequence[object] | Floats) -> list[NDArray[np.int64]]:
    """The indices of each stratum, those of one item in the largest."""
    members: dict[object, list[int]] = {}
    for i, label in enumerate(strata):
        members.setdefault(label, []).append(i)
    ordered = sorted(members.values(), key=len, reverse=True)
    single = [i for own in ordered[1:] if len(own) == 1 for i in own]
    kept = [own for i, own in enumerate(ordered) if i == 0 or len(own) > 1]
    return [np.array(own + (single if i == 0 else [])) for i, own in enumerate(kept)]


def ratio(sums: Floats) -> Floats:
    """Sum over sum: tokens/s, for instance."""
    return np.asarray(sums[..., 0] / sums[..., 1])


def double_ratio(sums: Floats) -> Floats:
    """A ratio over that of the two sums behind: tokens/s over the baseline's."""
    return np.asarray(ratio(sums) / ratio(sums[..., 2:]))


def clocked_interval(*sums: ArrayLike, level: float = LEVEL) -> Interval | None:
    """Interval of what a clock said of a few prompts, by Student's t on the logarithm: of two
    numbers per prompt their pooled ratio, of four the speedup (tokens, seconds, the baseline's
    tokens, its seconds). None for fewer than two prompts.

    Resampling a few prompts gives intervals that are too narrow: of 4 prompts, 79% hold the truth
    instead of 95%."""
    rows = np.column_stack([np.atleast_1d(column) for column in sums])
    found = estimate(rows, ratio if rows.shape[1] == 2 else double_ratio) if len(rows) else None
    return None if found is None else found.interval(level)


ENOUGH = 30
"""Degrees of freedom below which a footnote says that there are few."""


@dataclass(frozen=True, slots=True)
class Between:
    """Variance of the log price of a cycle of a cell between sessions, and its degrees of
    freedom."""

    variance: float
    freedom: int

    def added_to(self, speed: Estimate, sessions: int) -> Estimate:
        """A ratio of the speeds of two cells, each timed in so many sessions, with this variance of
        both in its error (Welch and Satterthwaite's degrees of freedom). `speed` is on the
        logarithmic scale."""
        if speed.error is None or not self.variance:
            return speed
        parts = (speed.error**2, speed.freedom), (2 * self.variance / sessions, self.freedom)
        whole = sum(variance for variance, _ in parts)
        return Estimate(
            speed.value, whole**0.5, whole**2 / sum(one**2 / free for one, free in parts), speed.log
        )

    def text(self, sessions: int) -> str:
        """A footnote on a row of so many sessions."""
        few = (
            ""
            if self.freedom >= ENOUGH
            else f", fewer than {ENOUGH}, so that it is uncertain itself"
        )
        return (
            f"the price of a cycle differs by {self.variance**0.5:.1%} between measuring "
            f"sessions (standard deviation, {self.freedom} degrees of freedom{few}), which is in "
            f"the interval and the verdict, for {sessions} session{'s' if sessions > 1 else ''}"
        )


def between(rotations: Iterable[Sequence[Sequence[Timed]]]) -> Between | None:
    """Of the timed prompts of each cell, cells of one baseline together. Cells count that were
    timed on the same prompts in the same sessions, and the baseline with them. None where no two
    cells share two sessions."""
    freedom, excess, weight = 0, 0.0, 0.0
    for cells in rotations:
        alike: dict[tuple[tuple[str, str, str], ...], list[list[Timed]]] = {}
        for rows in cells:
            rated = sorted(
                (row for row in rows if is_rated(row)),
                key=lambda row: (row.host, row.started, row.id),
            )
            alike.setdefault(tuple((row.host, row.started, row.id) for row in rated), []).append(
                rated
            )
        for keys, members in alike.items():
            runs = [[row.own for row in rows] for rows in members]
            if all(row.baseline is not None for row in members[0]):
                runs.append([row.runs[1] for row in members[0]])
            prices = np.log([[run.decode_s / run.cycles for run in row] for row in runs])
            own, least, free = _excess(prices, np.array([key[1] for key in keys]))
            freedom, excess, weight = freedom + free, excess + own, weight + least
    return Between(max(0.0, excess / weight), freedom) if freedom else None


def _excess(prices: NDArray[np.float64], sessions: NDArray[np.str_]) -> tuple[float, float, int]:
    """Of prices [cells, prompts] and each prompt's session: the sum of squares between sessions
    beyond what single prompts explain, by how much a unit of variance between sessions raises it,
    and its degrees of freedom."""
    names, counts = np.unique(sessions, return_counts=True)
    cells, prompts = prices.shape
    if cells < 2 or len(names) < 2 or prompts <= len(names):
        return 0.0, 0.0, 0
    rest = prices - prices.mean(0) - prices.mean(1, keepdims=True) + prices.mean()
    squares = sum(
        count * float((rest[:, sessions == name].mean(1) ** 2).sum())
        for name, count in zip(names, counts, strict=True)
    )
    within = (float((rest**2).sum()) - squares) / ((cells - 1) * (prompts - len(names)))
    free = (cells - 1) * (len(names) - 1)
    return (
        squares - free * within,
        (cells - 1) * (prompts - float((counts**2).sum()) / prompts),
        free,
    )
