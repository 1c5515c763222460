"""Advice on a workload: is speculative decoding worth it for these prompts, and with which setting?

Two questions are decided by intervals, never by point estimates: are answers of a setting complete sooner than those of
plain decoding, and is its quality loss within the limit. Faster tokens that longer answers use up are no gain. If an
interval allows both answers, the advice says so. The best of many settings looks good by chance, so the intervals hold
for all settings together. (A setting is wrongly called a gain only if a deciding answer is wrong, so each question may
spend the whole 5%.)"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from results.metrics.intervals import Interval, fewest_to_show, together
from results.metrics.quality_loss import Estimate

NOT_WORTH, WORTH = 2.0, 3.0
"""τ below and above which the overview article calls speculative decoding not worth it and worth it."""

Kind = Literal["gain", "gain at a price", "no gain", "undecided"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One measured setting.

    label     its name.
    exact     its method is lossless, so there is no loss to measure.
    tau       tokens committed per cycle.
    speedup   how much sooner answers are complete than with plain decoding of the same prompts: it decides.
    loss      fraction of plain decoding's quality that is lost; negative if it is better.
    n         prompts.
    by_token  tokens/s over those of plain decoding.
    length    tokens of its answers over those of plain decoding's.
    """

    label: str
    exact: bool
    tau: float | None
    speedup: Estimate
    loss: Estimate
    n: int
    by_token: Estimate = field(default_factory=Estimate)
    length: float | None = None

    @property
    def speed(self) -> float:
        """The speedup; 0 if it was not measured."""
        return self.speedup.value or 0.0

    @property
    def bounds(self) -> Interval:
        """The interval of the speedup; unbounded if it has none."""
        return self.speedup.interval or (0.0, math.inf)

    def gain(self, min_prompts: int) -> Literal["faster", "slower", "open"]:
        """Whether the interval shows it faster or slower than plain decoding. Always open for fewer than `min_prompts`
        prompts: their spread is not known well enough."""
        if self.speedup.interval is None or self.n < min_prompts:
            return "open"
        low, high = self.speedup.interval
        return "faster" if low > 1 else "slower" if high <= 1 else "open"

    def quality(self, limit: float, min_prompts: int) -> Literal["within", "above", "open"]:
        """Whether the interval shows the loss within or above the limit."""
        if self.exact:
            return "within"
        if self.loss.interval is None or self.n < min_prompts:
            return "open"
        low, high = self.loss.interval
        return "above" if low > limit else "within" if high <= limit else "open"

    def only_longer(self, min_prompts: int) -> bool:
        """Whether it is shown faster by the token but not by the answer, and its answers are longer."""
        is_faster = self.by_token.interval is not None and self.by_token.interval[0] > 1
        return is_faster and self.gain(min_prompts) != "faster" and self.length is not None and self.length > 1


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice in words.

    kind            gain, gain at a price, no gain, or undecided.
    headline        the answer.
    reasons         further sentences.
    best            label of the setting that the headline names, if any.
    exact           label of the fastest lossless setting, if it gains too.
    rule_of_thumb   the verdict of the overview article's thresholds on the τ of `best`.
    """

    kind: Kind
    headline: str
    reasons: tuple[str, ...]
    best: str | None = None
    exact: str | None = None
    rule_of_thumb: Literal["worth it", "between", "not worth it"] | None = None


def advise(candidates: Sequence[Candidate], limit: float, min_prompts: int) -> Advice:
    """The advice on settings measured on the same prompts. `limit`: allowed loss of quality, a fraction. Settings
    without a speedup are left out."""
    timed = [candidate for candidate in candidates if candidate.speedup.value is not None]
    if not timed:
        return Advice("undecided", "Undecided: no setting was timed; give timed=12 or more.", ())
    advice = _decided(timed, limit, min_prompts)
    return replace(advice, reasons=(*advice.reasons, *_only_longer(timed, min_prompts)))


def _decided(timed: Sequence[Candidate], limit: float, min_prompts: int) -> Advice:
    """The advice on settings that have a speedup."""
    quality = {candidate.label: candidate.quality(limit, min_prompts) for candidate in timed}
    gain = {candidate.label: candidate.gain(min_prompts) for candidate in timed}
    allowed = [candidate for candidate in timed if quality[candidate.label] != "above"]
    unclear = [candidate for candidate in allowed if gain[candidate.label] != "slower"]
    gaining = [candidate for candidate in unclear
               if (quality[candidate.label], gain[candidate.label]) == ("within", "faster")]
    costly = [candidate for candidate in timed if candidate not in allowed and gain[candidate.label] == "faster"]
    if gaining:
        others = [candidate for candidate in unclear if candidate not in gaining]
        return _gain(_fastest(gaining), gaining, others, len(timed), limit)
    if unclear:
        return _undecided(_fastest(unclear), costly, len(timed), limit, min_prompts)
    best = _fastest(costly or allowed or timed)
    if costly:
        head = (f"Only at a price: {best.label} is {times(best.speedup)} as fast as plain decoding, but it loses "
                f"{share(best.loss)} of quality, above the limit of {limit:.0%}. No setting within the limit gains.")
    elif allowed:
        head = (f"No: even the fastest setting, {best.label}, answers at {times(best.speedup)} the speed of plain "
                "decoding.")
    else:
        head = (f"No: every setting loses more than the limit of {limit:.0%}, and none is shown to be faster. "
                f"{best.label} answers at {times(best.speedup)} and loses {share(best.loss)}.")
    kind: Kind = "gain at a price" if costly else "no gain"
    return Advice(kind, head, _thumb(best, False), best.label, None, thumb(best.tau))


def _gain(best: Candidate, gaining: Sequence[Candidate], unclear: Sequence[Candidate], tried: int,
          limit: float) -> Advice:
    lossless = [candidate for candidate in gaining if candidate.exact]
    exact = _fastest(lossless) if lossless else None
    cost = ("without loss: the rule is lossless" if best.exact else
            f"and loses {share(best.loss)} of quality, within the limit of {limit:.0%}")
    head = f"Yes: {best.label} answers these prompts {times(best.speedup)} as fast as plain decoding, {cost}."
    reasons = list(_thumb(best, True))
    if exact is not None and exact is not best:
        reasons.append(f"Fastest lossless setting: {exact.label}, {times(exact.speedup)}.")
    slowest, _ = best.bounds
    if alike := sum(candidate is not best and candidate.bounds[1] >= slowest for candidate in gaining):
        others = _count(alike, "other setting")
        reasons.append(f"{best.n} prompts do not separate it from {others}: the intervals overlap.")
    if faster := [candidate for candidate in unclear if candidate.speed > best.speed]:
        other = _fastest(faster)
        why = "its interval is too wide to decide" if other.exact else (
            f"its loss, {share(other.loss)}, is not shown to be within {limit:.0%}")
        reasons.append(f"{other.label} may be faster ({times(other.speedup)}), but {why}.{_takes(other, tried, limit)}")
    if tried > 1:
        reasons.append(f"It is the best of {tried} settings on these prompts; expect slightly less on other prompts.")
    return Advice("gain", head, tuple(reasons), best.label, None if exact is None else exact.label, thumb(best.tau))


def _undecided(best: Candidate, costly: Sequence[Candidate], tried: int, limit: float, min_prompts: int) -> Advice:
    """No setting is shown to gain within the limit, but `best` may."""
    reasons = list(_thumb(best, None))
    few = f"Undecided after {_count(best.n, 'prompt')}: {best.label}"
    if best.gain(min_prompts) == "open":
        head = f"{few} answers at {times(best.speedup)} the speed of plain decoding, which may or may not be a gain."
        more = needed(best)
        if more is not None and more > 10_000:
            reasons.append("Showing so small a gain would take more than ten thousand prompts.")
        elif more is not None:
            reasons.append(f"About {max(more, min_prompts):,} prompts, timed in proportion, would show a gain of this "
                           "size.")
    else:
        head = (f"{few} is {times(best.speedup)} as fast as plain decoding, but its loss, {share(best.loss)}, is "
                f"not shown to be within the limit of {limit:.0%}.{_takes(best, tried, limit)}")
    if best.n < min_prompts:
        reasons.append(f"With fewer than {min_prompts} prompts, differences may be due to chance.")
    if costly:
        other = _fastest(costly)
        reasons.append(f"A gain is shown only above the limit: {other.label}, {times(other.speedup)}, loses "
                       f"{share(other.loss)}.")
    return Advice("undecided", head, tuple(reasons), best.label, None, thumb(best.tau))


def _only_longer(timed: Sequence[Candidate], min_prompts: int) -> tuple[str, ...]:
    """A sentence on the settings whose gain by the token longer answers use up."""
    speeds = [f"{candidate.label} ({candidate.by_token.value:.2f}× by the token, {candidate.speed:.2f}× by the answer, "
              f"answers {candidate.length:.2f}× as long)" for candidate in timed if candidate.only_longer(min_prompts)]
    return (f"Faster by the token, but not shown to answer sooner: {', '.join(speeds)}.",) if speeds else ()


def _takes(candidate: Candidate, tried: int, limit: float) -> str:
    """A sentence on the fewest prompts that could show the loss to be within the limit; empty if it is above it."""
    least = fewest_to_show(limit, together(tried))
    if least is None or candidate.exact or candidate.loss.value is None or candidate.loss.value > limit:
        return ""
    return (f" Even without loss, that takes about {least:,} prompts; if quality is a score, as many that plain "
            "decoding answers correctly.")


def needed(candidate: Candidate) -> int | None:
    """Fewest prompts for which the interval of this speedup would exclude 1: the width of its logarithm shrinks with
    their square root. None without an interval, and for a speedup of at most 1."""
    if candidate.speedup.interval is None or candidate.speed <= 1 + 1e-9:
        return None
    low, _ = candidate.speedup.interval
    return math.ceil(candidate.n * (math.log(candidate.speed / low) / math.log(candidate.speed)) ** 2)


def thumb(tau: float | None) -> Literal["worth it", "between", "not worth it"] | None:
    """The verdict of the overview article's thresholds; None for an unknown τ."""
    if tau is None:
        return None
    return "worth it" if tau > WORTH else "not worth it" if tau < NOT_WORTH else "between"


def _thumb(best: Candidate, gains: bool | None) -> tuple[str, ...]:
    """The rule of thumb in words and, if the measured speed disagrees, why."""
    verdict = thumb(best.tau)
    if verdict is None:
        return ()
    words = {"worth it": f"above {WORTH:g}: worth it by the rule of thumb",
             "between": f"between {NOT_WORTH:g} and {WORTH:g}: undecided by the rule of thumb",
             "not worth it": f"below {NOT_WORTH:g}: not worth it by the rule of thumb"}[verdict]
    but = ""
    if gains and verdict == "not worth it":
        but = "; it pays here because drafts are cheap"
    if gains is False and verdict == "worth it":
        but = "; here drafting and verification cost more than they save, or lose too much"
    return (f"Its τ is {best.tau:.2f}, {words}{but}.",)


def times(estimate: Estimate) -> str:
    """`1.62× [1.50, 1.75]`."""
    interval = "" if estimate.interval is None else " [{:.2f}, {:.2f}]".format(*estimate.interval)
    return f"{estimate.value:.2f}×{interval}"


def share(estimate: Estimate) -> str:
    """`1.2% [0.3%, 2.5%]`; `an unknown share` if nothing was measured."""
    if estimate.value is None:
        return "an unknown share"
    interval = "" if estimate.interval is None else " [{:.1%}, {:.1%}]".format(*estimate.interval)
    return f"{estimate.value:.1%}{interval}"


def _fastest(candidates: Sequence[Candidate]) -> Candidate:
    return max(candidates, key=lambda candidate: candidate.speed)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
