"""Is a method's score not worse than the baseline's? Decided by a paired interval and a stated margin, never by a
difference that is not significant."""

from __future__ import annotations

import math
from dataclasses import dataclass

from results.metrics import intervals
from results.metrics.intervals import Interval

MARGIN = 0.05
"""Loss of score that counts as none, unless a report states another: five points."""
MOST = 100_000
"""More prompts than these are not asked for."""
ALPHA = (1 - intervals.LEVEL) / 2
BOUND = -math.log(ALPHA)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision.

    kind     in words; those of `verdict` and of `results.metrics.gain.verdicts`.
    needed   undecided: about how many prompts would decide at this change and spread; None where none of up to
             100,000 would.
    """

    kind: str
    needed: int | None = None

    @property
    def text(self) -> str:
        """`not worse`; `undecided, n ≈ 1,200`."""
        if self.kind != "undecided":
            return self.kind
        return f"undecided, n ≈ {self.needed:,}" if self.needed else f"undecided, n > {MOST:,}"


def verdict(change: float, interval: Interval, n: int, margin: float = MARGIN) -> Verdict:
    """The verdict on a change of a score over `n` prompts with its paired 95% interval; all in fractions of 1.

    better: the whole interval is above 0. not worse: it is above −margin. worse: it is below 0 and reaches −margin.
    undecided: anything else. Raises ValueError for a margin that is not positive: no number of prompts shows that
    nothing at all is lost."""
    if not margin > 0:
        raise ValueError(f"margin={margin:g}: give a loss above 0 that counts as none, such as {MARGIN}")
    low, high = interval
    if low > 0:
        return Verdict("better")
    if low > -margin:
        return Verdict("not worse")
    if high < 0:
        return Verdict("worse")
    return Verdict("undecided", _needed(change, interval, n, margin))


def _needed(change: float, interval: Interval, n: int, margin: float) -> int | None:
    """The fewest at which the lower arm of the interval ends above −margin, or the upper one below 0."""
    low, high = interval
    decisions = [_until(change - low, change + margin, n)] if change > -margin else []
    decisions += [_until(high - change, -change, n)] if change < 0 else []
    return min((needed for needed in decisions if needed is not None), default=None)


def _until(arm: float, room: float, n: int) -> int | None:
    """The n at which an arm is as long as the room it has. It is about √(spread² ÷ n + (b ÷ n)²), where b ÷ n, with
    b = −ln 0.025, is what the bound keeps at no spread at all."""
    spread2 = max(0.0, arm**2 - (1 - ALPHA ** (1 / n)) ** 2) * n
    share = (math.sqrt(spread2**2 + 4 * BOUND**2 * room**2) - spread2) / (2 * BOUND**2)  # 1 ÷ n
    return max(math.ceil(1 / share), n + 1) if share * MOST >= 1 else None
