"""Statistics of sums over prompts of which only some were timed: standard error by the delta
method.

A statistic such as the modelled speedup joins sums over all prompts (target passes) with sums over
the timed ones (seconds a pass). What an item adds to both moves the statistic together, so its
error is that of the items' total effects: those of timed and of other items are two strata, whose
variances add (Welch and Satterthwaite give the degrees of freedom). A ratio of two rows over the
same items is one such statistic, so it is compared item by item."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.metrics.intervals import LEVEL, NORMAL_95, Interval
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

    def p_below(self, limit: float) -> float:
        """The same of "the truth is at least `limit`"."""
        return 1.0 if self.error is None else 1.0 - self.p_above(limit)


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

    def scaled(totals: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.asarray(statistic(totals), float)
            return np.log(values) if log else values

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
    for members in _members(np.zeros(len(rows)) if strata is None else strata):
        stratum = effects[members]
        variances.append(len(stratum) * float(stratum.var(ddof=1)))
        freedoms.append(_freedom(stratum) if skewed else len(stratum) - 1)
    whole = sum(variances)
    if not np.isfinite(whole):
        return Estimate(value, None, 0.0, log)
    if np.sqrt(whole) < ROUNDING * (1.0 if log else max(1.0, abs(value))):  # all items agree
        return Estimate(value, 0.0, float(sum(freedoms)), log)
    spread = sum(part**2 / free for part, free in zip(variances, freedoms, strict=True))
    return Estimate(value, float(np.sqrt(whole)), whole**2 / spread, log)


def _freedom(effects: Floats) -> float:
    """Of a sample variance, twice its square over its own variance, which grows with the
    kurtosis."""
    n, squares = len(effects), (effects - effects.mean()) ** 2
    variance = squares.mean()
    if not variance:
        return n - 1
    excess = (squares**2).mean() / variance**2 - (n - 3) / (n - 1)
    return float(np.clip(2 * n / excess, 1, n - 1)) if excess > 0 else n - 1


def _members(strata: Sequence[object] | Floats) -> list[NDArray[np.int64]]:
    """The indices of each stratum, those of one item in the largest."""
    members: dict[object, list[int]] = {}
    for i, label in enumerate(strata):
        members.setdefault(label, []).append(i)
    largest, *others = sorted(members.values(), key=len, reverse=True)
    single = [i for stratum in others if len(stratum) == 1 for i in stratum]
    several = [stratum for stratum in others if len(stratum) > 1]
    return [np.array(stratum) for stratum in ([*largest, *single], *several)]


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
    speed = estimate(rows, ratio if rows.shape[1] == 2 else double_ratio) if len(rows) else None
    return None if speed is None else speed.interval(level)


ENOUGH = 30
"""Degrees of freedom below which a footnote says that there are few."""
SESSION_FLOOR = 0.02
"""The least standard deviation between measuring sessions, of a method's price of a cycle and of
plain decoding's: three reports of one hour on the machine of results/measured/embedded_cpu gave
0.0, 1.3 and 2.8%, whose root mean square it is. A few sessions that agree do not show that more
would, and one session shows nothing."""


@dataclass(frozen=True, slots=True)
class Between:
    """Variance between measuring sessions, with its degrees of freedom; 0 of them: it is the floor.

    method   of the log price of a cycle of a cell beside those of the other cells.
    plain    of that of plain decoding beside the cells, which all speeds over it share.
    """

    method: float = SESSION_FLOOR**2
    method_freedom: int = 0
    plain: float = SESSION_FLOOR**2
    plain_freedom: int = 0

    def of_ratio(self, sessions: int, methods: int = 2, plain: int = 0) -> float:
        """The variance of a ratio of so many cells and plain decodings in so many sessions."""
        return (methods * self.method + plain * self.plain) / sessions

    def added_to(
        self, speed: Estimate, sessions: int, methods: int = 2, plain: int = 0
    ) -> Estimate:
        """A ratio of the speeds of so many cells and plain decodings, each timed in so many
        sessions, with their variances in its error (Welch and Satterthwaite's degrees of freedom).
        `speed` is on the logarithmic scale."""
        if speed.error is None:
            return speed
        parts = [
            (speed.error**2, speed.freedom),
            (methods * self.method / sessions, self.method_freedom or math.inf),
            (plain * self.plain / sessions, self.plain_freedom or math.inf),
        ]
        whole = sum(variance for variance, _ in parts)
        spread = sum(variance**2 / freedom for variance, freedom in parts if variance)
        freedom = whole**2 / spread if spread else math.inf
        return Estimate(speed.value, whole**0.5, freedom, speed.log)

    def widened(self, interval: Interval, sessions: int) -> Interval:
        """The 95% interval of a speed over plain decoding, with what differs between sessions."""
        middle, half = math.sqrt(interval[0] * interval[1]), math.log(interval[1] / interval[0]) / 2
        speed = Estimate(middle, half / NORMAL_95, math.inf)
        ends = self.added_to(speed, sessions, methods=1, plain=1).interval()
        assert ends is not None  # there is an error
        return ends

    def text(self, sessions: int) -> str:
        """A footnote on a row of so many sessions."""
        few = (
            ""
            if self.method_freedom >= ENOUGH
            else f", fewer than {ENOUGH}, so that it is uncertain itself"
        )
        known = (
            f"standard deviation, {self.method_freedom} degrees of freedom{few}"
            if self.method_freedom
            else "the least that is counted, where sessions were not compared"
        )
        return (
            f"the price of a cycle differs by {self.method**0.5:.1%} between measuring "
            f"sessions ({known}), which is in "
            f"the interval and the verdict, for {sessions} session{'s' if sessions > 1 else ''}"
        )


def between(cells: Iterable[Sequence[Timed]]) -> Between:
    """Of the timed prompts of each cell on one machine. Cells count together that were timed on the
    same prompts in the same sessions beside the same plain decoding: two or more for what differs
    from cell to cell, one or more for what differs in plain decoding."""
    alike: dict[tuple[tuple[str, str, float], ...], list[list[Timed]]] = {}
    for rows in cells:
        rated = sorted(
            (row for row in rows if is_rated(row) and row.baseline is not None),
            key=lambda row: (row.started, row.id),
        )
        key = tuple((row.started, row.id, row.runs[1].decode_s) for row in rated)
        alike.setdefault(key, []).append(rated)
    excess, weight, freedom = np.zeros(2), np.zeros(2), 0
    # what moves plain decoding moves it in all groups
    plain_freedom: dict[frozenset[str], int] = {}
    for group in alike.values():
        sessions = np.array([row.started for row in group[0]])
        prices = np.log([[row.own.decode_s / row.own.cycles for row in rows] for rows in group])
        plain = np.log([row.runs[1].decode_s / row.runs[1].cycles for row in group[0]])
        parts = [_excess(prices - prices.mean(0), sessions, len(group) - 1)]
        parts.append(_excess((plain - prices.mean(0))[None], sessions, 1))
        for place, (squares, least, free) in enumerate(parts):
            excess[place] += squares
            weight[place] += least
            if place == 0:
                freedom += free
            elif free:
                plain_freedom[frozenset(sessions.tolist())] = free
    variances = np.divide(excess, weight, out=np.zeros(2), where=weight > 0).tolist()
    freedoms = (freedom, sum(plain_freedom.values()))
    of_method, of_plain = [
        (variance, free) if variance > SESSION_FLOOR**2 else (SESSION_FLOOR**2, 0)
        for variance, free in zip(variances, freedoms, strict=True)
    ]
    return Between(*of_method, *of_plain)


def _excess(
    rest: NDArray[np.float64], sessions: NDArray[np.str_], cells: int
) -> tuple[float, float, int]:
    """Of log prices [rows, prompts] with as many independent rows as `cells`, and each prompt's
    session: the sum of squares between sessions beyond what single prompts explain, by how much a
    unit of variance between sessions raises it, and its degrees of freedom."""
    names, counts = np.unique(sessions, return_counts=True)
    prompts = len(sessions)
    if cells < 1 or len(names) < 2 or prompts <= len(names):
        return 0.0, 0.0, 0
    rest = rest - rest.mean(1, keepdims=True)
    squares = sum(
        count * float((rest[:, sessions == name].mean(1) ** 2).sum())
        for name, count in zip(names, counts, strict=True)
    )
    within = (float((rest**2).sum()) - squares) / (cells * (prompts - len(names)))
    free = cells * (len(names) - 1)
    return squares - free * within, cells * (prompts - float((counts**2).sum()) / prompts), free
