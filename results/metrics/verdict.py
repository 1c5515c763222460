"""Verdicts on rows of one table: is a score not worse than plain decoding's, is a relaxed method a gain?

A gain is shown by three one-sided tests, corrected for the rows that are asked at once; that a score is not worse, by a
paired interval and a stated margin, never by a difference that is not significant."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np

from results.metrics import intervals
from results.metrics.answer_speed import Priced, answer_speedup
from results.metrics.delta import Estimate, estimate, ratio
from results.metrics.intervals import Interval
from results.metrics.metric import Sums
from results.metrics.pairwise import score_change, score_pairs, shows_loss
from results.metrics.summary import Summary
from results.metrics.tau_gain import gain
from results.store.compared import Compared
from results.store.timed import is_rated

MARGIN = 0.05
"""Loss of score that counts as none, unless a report states another: five points."""
MOST = 100_000
"""More prompts than these are not asked for."""
ALPHA = (1 - intervals.LEVEL) / 2
BOUND = -math.log(ALPHA)
NLL_MARGIN = 0.05
"""Nats a token that count as no loss where no score can judge."""
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision.

    kind     in words; those of `verdict` and of `verdicts`.
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
    return Verdict("undecided", _needed_to_lose(change, interval, n, margin))


def _needed_to_lose(change: float, interval: Interval, n: int, margin: float) -> int | None:
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


@dataclass(frozen=True, slots=True)
class Answered:
    """The reported prompts of a row.

    pairs      each beside autoregressive decoding.
    settings   prompt id -> the setting that decoded it; empty where one setting decoded all.
    lossless   its method is lossless, so that nothing is to be decided about it.
    """

    pairs: Sequence[Compared]
    settings: Mapping[str, str] = field(default_factory=dict)
    lossless: bool = False


def over_best(own: Answered, best: Answered, margin: float) -> dict[str, Any]:
    """The metrics `over_best_…` of a row, each with `_ci95`, over the prompts that both rows answered.

        over_best_tau            difference of τ
        over_best_length         Σ own tokens ÷ Σ tokens of the best lossless row
        over_best_answer         ratio of `answer_speedup_modelled`, prompt by prompt
        over_best_accuracy       difference of the scores
        over_best_tests          whether it is a gain (`verdicts`); None for a lossless row

    `margin`: loss of score that counts as none."""
    values = answers_over_best(own, best, margin)
    if not values:
        return {}
    own, best = _common(own, best)
    parts = gain(*({pair.id: pair.sample for pair in row.pairs} for row in (own, best)))
    values |= {name.replace("tau_gain", "over_best_tau"): value for name, value in parts.items()}
    lengths = [[len(run.output_ids) for run in (mine.sample, other.sample)]
               for mine, other in zip(own.pairs, best.pairs, strict=True)]
    return values | {"over_best_length": Sums.of(lengths)}


def answers_over_best(own: Answered, best: Answered, margin: float) -> dict[str, Any]:
    """Of the metrics of `over_best` those of speed and score, and the tests. Empty where no prompt was answered by
    both."""
    whole = own
    own, best = _common(own, best)
    if not own.pairs:
        return {}
    beside = [Compared(mine.sample, replace(other.sample)) for mine, other in zip(own.pairs, best.pairs, strict=True)]
    change = score_change(score_pairs(beside))
    values = {f"over_best_accuracy{end}": change[f"accuracy_change{end}"] for end in ("", "_ci95")}
    priced = Priced.of(own.pairs, own.settings)
    over = priced.estimate(answer_speedup, Priced.of(best.pairs, best.settings))
    plain = Priced.of(whole.pairs, whole.settings).estimate(answer_speedup)
    values |= {"over_best_answer": None if over is None else over.value,
               "over_best_answer_ci95": None if over is None else over.interval()}
    if own.lossless or over is None or plain is None:
        return values | {"over_best_tests": None}
    return values | {"over_best_tests": gain_tests(over, plain, whole.pairs, margin)}


def _common(own: Answered, best: Answered) -> tuple[Answered, Answered]:
    """Both rows over the prompts that both answered, sorted by id; timed are those that both were timed on."""
    mine, others = ({pair.id: pair for pair in row.pairs} for row in (own, best))
    ids = sorted(mine.keys() & others.keys())
    clocks = [{pair.id for pair in pairs.values() if pair.timed is not None and is_rated(pair.timed)}
              for pairs in (mine, others)]
    timed = clocks[0] & clocks[1]
    rows = [replace(row, pairs=[pairs[name] if name in timed else replace(pairs[name], timed=None) for name in ids])
            for row, pairs in ((own, mine), (best, others))]
    return rows[0], rows[1]


def findings(cells: Sequence[tuple[str, Summary]], margin: float) -> list[str]:
    """A sentence on each row of one task and temperature that was compared with the best lossless one: is it a gain?
    With several rows, one on all of them comes first. `margin`: loss of score that counts as none."""
    tests = {name: summary.over_best_tests for name, summary in cells if summary.over_best_tests is not None}
    decided = verdicts(tests)
    sentences = [_finding(name, decided[name], summary, margin) for name, summary in cells if name in decided]
    return sentences if len(decided) < 2 else [_on_all(decided), *sentences]


def _on_all(decided: Mapping[str, Verdict]) -> str:
    """Which rows are a gain, and how many are what else."""
    of: dict[str, list[str]] = {}
    for name, one in decided.items():
        of.setdefault(one.kind, []).append(name)
    ahead = of.pop("gain", [])
    others = ", ".join(f"{len(names)} {kind}" for kind, names in of.items())
    named = f"{'; '.join(ahead)} {'are gains' if len(ahead) > 1 else 'is a gain'}" if ahead else "none is a gain"
    return (f"Of {len(decided)} rows, {named}: faster than the best lossless method and than plain decoding, and not "
            f"worse than it by more than the margin (p-values corrected over the rows by Holm's method)"
            f"{f'; {others}' if others else ''}.")


def _finding(name: str, decided: Verdict, summary: Summary, margin: float) -> str:
    length = "" if summary.over_best_length is None else f", {summary.over_best_length:.2f}× as long"
    speeds = (f"answers {_ratio(summary, 'over_best_answer')} as fast as the best lossless method's and "
              f"{_ratio(summary, 'answer_speedup_modelled')} as fast as plain decoding's{length}")
    return f"{name}: {decided.text}. {speeds[0].upper()}{speeds[1:]}; {_quality(summary, margin)}."


def _quality(summary: Summary, margin: float) -> str:
    """`accuracy −1.2 pp [−6.0, +3.5], of which −5 pp count as no loss`: beside plain decoding."""
    tests = summary.over_best_tests
    assert tests is not None, "only rows with tests have a verdict"
    if tests.measure == "nll":
        change = None if summary.nll is None or summary.baseline_nll is None else summary.nll - summary.baseline_nll
        return f"no score can judge; NLL {_signed(change, 3)} nats, of which +{NLL_MARGIN:g} count as no loss"
    change, interval = summary.accuracy_change, summary.accuracy_change_ci95
    shown = "" if interval is None else f" [{', '.join(_signed(100 * end, 1) for end in interval)}]"
    points = _signed(None if change is None else 100 * change, 1)
    return f"accuracy {points} pp{shown}, of which −{100 * margin:g} count as no loss"


def _ratio(summary: Summary, name: str) -> str:
    """`1.25× [1.10, 1.40]`."""
    value, interval = getattr(summary, name), getattr(summary, f"{name}_ci95")
    ends = "" if interval is None else f" [{', '.join(f'{end:.2f}' for end in interval)}]"
    return f"{'–' if value is None else f'{value:.2f}×'}{ends}"


def _signed(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:+.{digits}f}".replace("-", "−")
