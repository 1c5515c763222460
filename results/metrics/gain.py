"""Is a relaxed method a gain? Three one-sided tests decide, corrected for the rows that are asked at once."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from results.metrics import intervals
from results.metrics.delta import Estimate, estimate, ratio
from results.metrics.non_inferiority import ALPHA, MOST, Verdict
from results.metrics.quality_loss import score_pairs, shows_loss
from results.store.compared import Compared

NLL_MARGIN = 0.05
"""Nats a token that count as no loss where no score can judge."""
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the numbers say of one statement.

    for_p      one-sided p-value of its opposite: small where the statement is shown
    against_p  one-sided p-value of the statement: small where its opposite is shown
    errors     how many standard errors the estimate lies on the statement's side; negative on the other side
    """

    for_p: float
    against_p: float
    errors: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GainTests:
    """The three statements that make a gain, each tested one-sided.

    best     answers are complete sooner than with the best lossless method
    plain    sooner than with plain decoding
    quality  not worse than plain decoding by more than the margin, in score or in NLL
    measure  which of the two
    n        prompts
    """

    best: Evidence
    plain: Evidence
    quality: Evidence
    measure: Literal["score", "nll"]
    n: int

    @property
    def all(self) -> tuple[Evidence, Evidence, Evidence]:
        return self.best, self.plain, self.quality


def gain_tests(over_best: Estimate, over_plain: Estimate, pairs: Sequence[Compared], margin: float) -> GainTests | None:
    """The tests of one row: its speeds per answer over those of the best lossless one and of plain decoding, and its
    prompts beside plain decoding. None where neither a score nor the NLL can judge."""
    scores = score_pairs(pairs)
    if scores and shows_loss([plain for plain, _ in scores.values()]):
        plain, own = np.array([scores[item] for item in sorted(scores)]).T
        quality, by_score = _of_score(plain, own, margin), True
    elif (nats := nll_change(pairs)) is not None:
        worse = Estimate(-nats.value, nats.error, nats.freedom, log=False)  # the statement: above −margin
        quality, by_score = _of(worse, -NLL_MARGIN), False
    else:
        return None
    return GainTests(best=_of(over_best, 1.0), plain=_of(over_plain, 1.0), quality=quality,
                     measure="score" if by_score else "nll", n=len(pairs))


def nll_change(pairs: Sequence[Compared]) -> Estimate | None:
    """NLL minus plain decoding's, nats a token, prompts paired; None where a prompt has none."""
    sums = [[own.nll, len(own.output_ids), base.nll, len(base.output_ids)] for own, base in (
        (pair.sample, pair.baseline) for pair in pairs) if own.nll is not None and base.nll is not None]
    if not sums or len(sums) < len(pairs):
        return None
    return estimate(sums, lambda s: ratio(s) - ratio(s[..., 2:]), log=False)


def verdicts(rows: Mapping[Name, GainTests]) -> dict[Name, Verdict]:
    """The verdict of each row of one table, task and temperature; Holm's correction is over all of them.

    gain             faster than the best lossless method, faster than plain decoding and not worse than it by more than
                     the margin, each one-sided at 2.5%, with the largest of the three p-values corrected
    gain at a price  faster than both, and worse by more than the margin, likewise
    no gain          one of the three is shown to be false, at 2.5% for itself
    undecided        anything else; the prompts that would about decide are timed in proportion"""
    names = list(rows)
    gain = dict(zip(names, intervals.holm([max(test.for_p for test in rows[name].all) for name in names]), strict=True))
    price = dict(zip(names, intervals.holm([max(rows[name].best.for_p, rows[name].plain.for_p,
                                                rows[name].quality.against_p) for name in names]), strict=True))
    return {name: _verdict(rows[name], float(gain[name]), float(price[name]), len(names)) for name in names}


def _verdict(tests: GainTests, gain_p: float, price_p: float, rows: int) -> Verdict:
    if gain_p <= ALPHA:
        return Verdict("gain")
    if price_p <= ALPHA:
        return Verdict("gain at a price")
    if min(test.against_p for test in tests.all) <= ALPHA:
        return Verdict("no gain")
    return Verdict("undecided", _needed(tests, rows))


def _needed(tests: GainTests, rows: int) -> int | None:
    """The prompts at which the errors, which shrink with their root, would decide at these estimates: for a gain every
    test, for its opposite any."""
    wanted = -intervals.NORMAL.inv_cdf(ALPHA / rows)
    ratios = [wanted / abs(test.errors) if test.errors else math.inf for test in tests.all]
    against = [ratio for ratio, test in zip(ratios, tests.all, strict=True) if test.errors < 0]
    factor = max(1.0, min(against) if against else max(ratios))
    return math.ceil(tests.n * factor**2) + (factor == 1) if tests.n * factor**2 < MOST else None


def _of(found: Estimate, limit: float) -> Evidence:
    """That the truth is above `limit`."""
    above = found.p_above(limit)
    room = found.at - (math.log(limit) if found.log else limit)
    errors = 0.0 if found.error is None else room / found.error if found.error else math.copysign(1e6, room)
    return Evidence(for_p=above, against_p=1 - above if found.error is not None else 1.0, errors=errors)


def _of_score(plain: Sequence[float], own: Sequence[float], margin: float) -> Evidence:
    """That the mean of `own` is not below that of `plain` by the margin or more: from the bound that gives the interval
    of Δ accuracy (`intervals.difference_interval`)."""
    lower, upper = intervals.difference_draws(plain, own)
    change = float(np.mean(own) - np.mean(plain))
    low, high = intervals.ends(lower, upper)
    arm = change - low if change > -margin else high - change
    errors = (change + margin) / (arm / intervals.NORMAL_95) if arm else math.copysign(1e6, change + margin)
    return Evidence(for_p=_share(lower <= -margin), against_p=_share(upper >= -margin), errors=errors)


def _share(hits: np.ndarray) -> float:
    """A p-value from draws, never 0."""
    return float((hits.sum() + 1) / (len(hits) + 1))
