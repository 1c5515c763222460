"""Acceptance of draft tokens in one request, as servers report it: counters, a histogram, and the cycles in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from results.exchange.base import Exchanged
from results.exchange.lines import Fields
from results.exchange.plausible import LONGEST_CYCLE

PerStep = Annotated[int, Field(ge=0, le=LONGEST_CYCLE)]


class Acceptance(Fields):
    """The counters that vLLM and AIPerf name alike.

    num_spec_steps             cycles
    num_accepted_draft_tokens  accepted draft tokens, without the correction or bonus
    num_draft_tokens           proposed draft tokens
    num_spec_tokens            the most draft tokens of a cycle
    per_step_accepted          accepted draft tokens of each cycle
    per_step_drafted           proposed draft tokens of each cycle
    """

    mean_acceptance_length: NonNegativeFloat
    draft_acceptance_rate: NonNegativeFloat
    num_spec_steps: NonNegativeInt
    num_accepted_draft_tokens: NonNegativeInt
    num_draft_tokens: NonNegativeInt
    num_spec_tokens: NonNegativeInt | None = None
    per_step_accepted: list[PerStep] | None = None
    per_step_drafted: list[PerStep] | None = None

    def check(self, histogram: Sequence[int]) -> None:
        """Raise ValueError, naming the field, if the counts contradict each other. [i] of `histogram`: cycles with i
        accepted draft tokens."""
        cycles, accepted = sum(histogram), sum(i * count for i, count in enumerate(histogram))
        known = {"num_spec_steps": (self.num_spec_steps, cycles),
                 "num_accepted_draft_tokens": (self.num_accepted_draft_tokens, accepted)}
        for name, (given, counted) in known.items():
            if given != counted:
                raise ValueError(f"{name}: {given}, but acceptance_histogram gives {counted}")
        if accepted > self.num_draft_tokens:
            raise ValueError(f"num_draft_tokens: {self.num_draft_tokens}, fewer than the {accepted} accepted ones")
        if self.per_step_accepted is not None and trimmed(histogram_of(self.per_step_accepted)) != trimmed(histogram):
            raise ValueError("per_step_accepted: its counts are not those of acceptance_histogram")
        if self.per_step_drafted is not None and sum(self.per_step_drafted) != self.num_draft_tokens:
            raise ValueError(f"per_step_drafted: {sum(self.per_step_drafted)} together, but num_draft_tokens is "
                             f"{self.num_draft_tokens}")

    def shared(self, histogram: Sequence[int]) -> dict[str, Any]:
        """The fields of `Exchanged` that these counts give."""
        each = self.per_step_accepted
        return {"steps": [self.num_spec_steps], "histogram": list(histogram), "drafted": self.num_draft_tokens,
                "draft_length": self.num_spec_tokens, "accepted": each, "proposed": self.per_step_drafted,
                "committed": None if each is None else [accepted + 1 for accepted in each]}


def acceptance_of(answer: Exchanged) -> tuple[dict[str, Any], list[int]] | None:
    """The counters of an answer without the histogram, and the histogram. None if the answer does not say how many
    draft tokens were accepted and proposed.

    mean_acceptance_length = 1 + accepted ÷ cycles and draft_acceptance_rate = accepted ÷ proposed; 1 and 0 without
    cycles or proposals. A cycle cut by an end-of-sequence token counts all tokens it accepted, as in a server."""
    accepted = accepted_each(answer)
    histogram = answer.histogram if accepted is None else histogram_of(accepted)
    if histogram is None or answer.drafted is None:
        return None
    cycles, total = sum(histogram), sum(i * count for i, count in enumerate(histogram))
    counters = {
        "mean_acceptance_length": 1 + total / cycles if cycles else 1.0,
        "draft_acceptance_rate": total / answer.drafted if answer.drafted else 0.0,
        "num_spec_steps": cycles, "num_accepted_draft_tokens": total, "num_draft_tokens": answer.drafted,
        "num_spec_tokens": answer.draft_length, "per_step_accepted": accepted, "per_step_drafted": answer.proposed}
    return {name: value for name, value in counters.items() if value is not None}, histogram


def accepted_each(answer: Exchanged) -> list[int] | None:
    """Draft tokens accepted in each cycle: the committed tokens without the correction or bonus."""
    if answer.accepted is not None or answer.committed is None:
        return answer.accepted
    return [max(0, committed - 1) for committed in answer.committed]


def histogram_of(accepted: Sequence[int]) -> list[int]:
    """[i]: number of occurrences of i."""
    counts = [0] * (max(accepted, default=-1) + 1)
    for count in accepted:
        counts[count] += 1
    return counts


def trimmed(histogram: Sequence[int]) -> list[int]:
    """The histogram without the zeros at its end."""
    end = max((place + 1 for place, count in enumerate(histogram) if count), default=0)
    return list(histogram[:end])
