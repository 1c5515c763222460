"""Is speculative decoding worth it for these prompts, and with which setting? One pure function from numbers to words.

Two questions are answered by intervals, never by point estimates: is a setting faster than plain decoding, and is what
it loses within the limit. Where an interval holds both answers, the advice says that it cannot tell. The best of many
settings looks good by chance, so these intervals hold for all that were tried together. (A setting is wrongly called a
gain only if one answer is wrong that decides it, so each question may use up the whole 5%.)"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from results.metrics.intervals import fewest_to_show, together
from results.metrics.quality_loss import Estimate

NOT_WORTH, WORTH = 2.0, 3.0
"""τ below and above which the overview article calls speculative decoding not worth it and worth it."""

Kind = Literal["gain", "gain above the limit", "no gain", "undecided"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One measured setting. `exact`: its rule is lossless, so there is no loss to measure. `speedup` over plain
    decoding of the same `n` prompts. `loss` as a fraction of plain decoding's quality, positive = worse than it."""

    label: str
    exact: bool
    tau: float | None
    speedup: Estimate
    loss: Estimate
    n: int

    def gain(self, min_prompts: int) -> Literal["faster", "slower", "open"]:
        """Compared with plain decoding, by the interval. Fewer than `min_prompts` prompts show nothing: they hardly
        stand for others, and their spread is not known."""
        if self.speedup.interval is None or self.n < min_prompts:
            return "open"
        low, high = self.speedup.interval
        return "faster" if low > 1 else "slower" if high <= 1 else "open"

    def quality(self, limit: float, min_prompts: int) -> Literal["within", "above", "open"]:
        """Is the loss within the limit, by the interval?"""
        if self.exact:
            return "within"
        if self.loss.interval is None or self.n < min_prompts:
            return "open"
        low, high = self.loss.interval
        return "above" if low > limit else "within" if high <= limit else "open"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, in words. `best` is the label of the setting that is spoken of, `exact` that of the fastest lossless
    one where it gains too. `rule_of_thumb` is what the article's thresholds say of the τ of `best`."""

    kind: Kind
    headline: str
    reasons: tuple[str, ...]
    best: str | None = None
    exact: str | None = None
    rule_of_thumb: Literal["worth it", "between", "not worth it"] | None = None


def advise(candidates: Sequence[Candidate], limit: float, min_prompts: int) -> Advice:
    """The advice for settings that were measured on the same prompts. `limit`: the loss of quality that is allowed, as
    a fraction. A setting without a speedup is left out."""
    known = [one for one in candidates if one.speedup.value is not None]
    if not known:
        return Advice("undecided", "Cannot tell: no setting was measured.", ())
    quality = {one.label: one.quality(limit, min_prompts) for one in known}
    gain = {one.label: one.gain(min_prompts) for one in known}
    allowed = [one for one in known if quality[one.label] != "above"]
    unclear = [one for one in allowed if gain[one.label] != "slower"]
    gaining = [one for one in unclear if (quality[one.label], gain[one.label]) == ("within", "faster")]
    costly = [one for one in known if one not in allowed and gain[one.label] == "faster"]
    if gaining:
        return _gain(_fastest(gaining), gaining, [one for one in unclear if one not in gaining], len(known), limit)
    if unclear:
        return _undecided(_fastest(unclear), costly, len(known), limit, min_prompts)
    best = _fastest(costly or allowed or known)
    if costly:
        head = (f"Only at a price: {best.label} is {times(best.speedup)} as fast as plain decoding, but it loses "
                f"{share(best.loss)} of quality, above the stated {limit:.0%}. No setting within it gains.")
    elif allowed:
        head = f"No: even the fastest setting, {best.label}, runs at {times(best.speedup)} of plain decoding's speed."
    else:
        head = (f"No: every setting loses more than the stated {limit:.0%}, and none is surely faster; {best.label} "
                f"runs at {times(best.speedup)} and loses {share(best.loss)}.")
    kind: Kind = "gain above the limit" if costly else "no gain"
    return Advice(kind, head, _thumb(best, False), best.label, None, thumb(best.tau))


def _gain(best: Candidate, gaining: Sequence[Candidate], unclear: Sequence[Candidate], tried: int,
          limit: float) -> Advice:
    lossless = [one for one in gaining if one.exact]
    exact = _fastest(lossless) if lossless else None
    cost = ("and nothing is lost: the rule is lossless" if best.exact else
            f"and loses {share(best.loss)} of quality, within the stated {limit:.0%}")
    head = f"Yes: {best.label} decodes these prompts {times(best.speedup)} as fast as plain decoding, {cost}."
    reasons = list(_thumb(best, True))
    if exact is not None and exact is not best:
        reasons.append(f"Without any loss: {exact.label}, {times(exact.speedup)}.")
    low = best.speedup.interval[0]
    if alike := sum(one is not best and one.speedup.interval[1] >= low for one in gaining):
        reasons.append(f"{best.n} prompts cannot tell it from {_count(alike, 'other setting')}: the intervals overlap.")
    if faster := [one for one in unclear if one.speedup.value > best.speedup.value]:
        other = _fastest(faster)
        why = "its interval is too wide to tell" if other.exact else (
            f"what it loses, {share(other.loss)}, is not shown to be within {limit:.0%}")
        reasons.append(f"{other.label} may be faster ({times(other.speedup)}), but {why}.{_takes(other, tried, limit)}")
    if tried > 1:
        reasons.append(f"It is the best of {tried} settings on these prompts: on others expect a little less.")
    return Advice("gain", head, tuple(reasons), best.label, exact and exact.label, thumb(best.tau))


def _undecided(best: Candidate, costly: Sequence[Candidate], tried: int, limit: float, min_prompts: int) -> Advice:
    """Nothing is shown to gain within the limit, but `best` may."""
    reasons = list(_thumb(best, None))
    few = f"Cannot tell from {_count(best.n, 'prompt')}: {best.label}"
    if best.gain(min_prompts) == "open":
        head = f"{few} runs at {times(best.speedup)} of plain decoding's speed, which may be a gain or none."
        more = needed(best)
        if more is not None and more > 10_000:
            reasons.append("A gain so small would take more than ten thousand prompts to tell.")
        elif more is not None:
            reasons.append(f"About {max(more, min_prompts):,} prompts would tell a gain of this size.")
    else:
        head = (f"{few} is {times(best.speedup)} as fast as plain decoding, but what it loses, {share(best.loss)}, is "
                f"not shown to be within the stated {limit:.0%}.{_takes(best, tried, limit)}")
    if best.n < min_prompts:
        reasons.append(f"What fewer than {min_prompts} prompts show may be chance.")
    if costly:
        other = _fastest(costly)
        reasons.append(f"A gain is certain only above the limit: {other.label}, {times(other.speedup)}, loses "
                       f"{share(other.loss)}.")
    return Advice("undecided", head, tuple(reasons), best.label, None, thumb(best.tau))


def _takes(one: Candidate, tried: int, limit: float) -> str:
    """How many prompts a loss within the limit takes at least, where it may be within."""
    least = fewest_to_show(limit, together(tried))
    if least is None or one.exact or one.loss.value is None or one.loss.value > limit:
        return ""
    return (f" Even if nothing is lost, that takes about {least:,} prompts; where quality is a score, so many that "
            "plain decoding gets right.")


def needed(one: Candidate) -> int | None:
    """Prompts from which on the interval of this speedup would leave out 1: its width, of the logarithm, shrinks with
    their root. None without an interval, and for a speedup that is no gain."""
    if one.speedup.interval is None or one.speedup.value <= 1 + 1e-9:
        return None
    low, _ = one.speedup.interval
    return math.ceil(one.n * (math.log(one.speedup.value / low) / math.log(one.speedup.value)) ** 2)


def thumb(tau: float | None) -> Literal["worth it", "between", "not worth it"] | None:
    """What the article's thresholds say."""
    if tau is None:
        return None
    return "worth it" if tau > WORTH else "not worth it" if tau < NOT_WORTH else "between"


def _thumb(best: Candidate, gains: bool | None) -> tuple[str, ...]:
    """The rule of thumb in words, and why the measured speed disagrees where it does."""
    said = thumb(best.tau)
    if said is None:
        return ()
    words = {"worth it": f"above {WORTH:g}: by the rule of thumb it is worth it",
             "between": f"between {NOT_WORTH:g} and {WORTH:g}: the rule of thumb leaves it open",
             "not worth it": f"below {NOT_WORTH:g}: by the rule of thumb it is not worth it"}[said]
    but = ""
    if gains and said == "not worth it":
        but = "; here drafts cost so little that it pays all the same"
    if gains is False and said == "worth it":
        but = "; here drafting and verifying cost more than they save, or lose too much"
    return (f"Its τ is {best.tau:.2f}, {words}{but}.",)


def times(estimate: Estimate) -> str:
    """`1.62× [1.50, 1.75]`."""
    around = "" if estimate.interval is None else " [{:.2f}, {:.2f}]".format(*estimate.interval)
    return f"{estimate.value:.2f}×{around}"


def share(estimate: Estimate) -> str:
    """`1.2% [0.3%, 2.5%]`; `an unknown share` where nothing was measured."""
    if estimate.value is None:
        return "an unknown share"
    around = "" if estimate.interval is None else " [{:.1%}, {:.1%}]".format(*estimate.interval)
    return f"{estimate.value:.1%}{around}"


def _fastest(candidates: Sequence[Candidate]) -> Candidate:
    return max(candidates, key=lambda one: one.speedup.value)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
