"""What a prompt adds to the sums that metrics are made of, and what answers that do not end by
themselves look like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from results.metrics.answer_speed import addends
from results.store.sample import Compared, Sample

LOOP_PERIOD, LOOP_TOKENS, LOOP_TURNS = 200, 64, 4
"""Longest period of a loop, and its shortest length: so many tokens, and so many periods."""
CENSORED_ABOVE = 0.1
"""Share of the lossless answers at the length limit above which lengths cannot be compared."""
LENGTH = "length"
"""How a turn ended at the length limit."""


def is_capped(run: Sample) -> bool:
    """Whether a turn of the answer ended at the length limit."""
    return LENGTH in run.finish


def loops(run: Sample) -> bool:
    """Whether a turn of the answer ends in a loop."""
    return any(map(ends_in_loop, _turns(run)))


def ends_in_loop(ids: Sequence[int]) -> bool:
    """Whether the last max(64, 4 d) tokens repeat with a period d ≤ 200: the runaway form, high
    acceptance without end."""
    tail = np.asarray(ids)
    longest = min(LOOP_PERIOD, len(tail) // LOOP_TURNS)
    repeated: list[int] = (
        (1 + np.flatnonzero(tail[-1 - longest : -1][::-1] == tail[-1])).tolist() if longest else []
    )
    for period in repeated:
        size = max(LOOP_TOKENS, LOOP_TURNS * period)
        if size <= len(tail) and (tail[-size:-period] == tail[len(tail) - size + period :]).all():
            return True
    return False


def censoring(baseline_truncated_share: float | None) -> str:
    """Why lengths of this cell cannot be compared, as a footnote; empty where they can."""
    if baseline_truncated_share is None or baseline_truncated_share <= CENSORED_ABOVE:
        return ""
    return (
        f"censored: {baseline_truncated_share:.0%} of the lossless answers end at the length limit"
    )


def _turns(run: Sample) -> Iterator[Sequence[int]]:
    """The tokens of each turn."""
    ends = np.cumsum(run.turn_tokens)
    for size, end in zip(run.turn_tokens, ends.tolist(), strict=True):
        yield run.output_ids[end - size : end]


Addends = tuple[float, ...] | None
"""None for a prompt that has none."""


def clock(pair: Compared) -> Addends:
    """Tokens and seconds of the whole answer, the baseline's behind."""
    if pair.timed is None:
        return None
    own, base = pair.timed.runs
    return own.tokens, own.prefill_s + own.decode_s, base.tokens, base.prefill_s + base.decode_s


def decode_clock(pair: Compared) -> Addends:
    """Tokens and seconds behind the prompt's forward, the baseline's behind."""
    if pair.timed is None:
        return None
    own, base = pair.timed.runs
    return own.tokens, own.decode_s, base.tokens, base.decode_s


def rates(pair: Compared) -> Addends:
    """Tokens a second of the whole answer, the baseline's behind."""
    counts = clock(pair)
    if counts is None or min(counts) <= 0:
        return None
    tokens, seconds, base_tokens, base_seconds = counts
    return tokens / seconds, base_tokens / base_seconds


def answer_seconds(pair: Compared) -> Addends:
    """Seconds of the whole answer, the baseline's first."""
    if pair.timed is None:
        return None
    own, base = pair.timed.runs
    return base.prefill_s + base.decode_s, own.prefill_s + own.decode_s


def priced(pair: Compared) -> Addends:
    """As `answer_speed.Priced` takes them."""
    return tuple(addends(pair, [""], ""))


def repeated(pair: Compared) -> Addends:
    """Whether the timed pass decoded the tokens of the quality pass."""
    return None if pair.timed is None else (pair.timed.own.parted is None, 1)


def timed_cycles(pair: Compared) -> Addends:
    """Committed tokens and cycles of a timed prompt."""
    return None if pair.timed is None else (sum(pair.sample.committed), len(pair.sample.committed))


def from_draft(sample: Sample) -> int:
    """Emitted tokens from the draft. An end-of-text token inside a draft cuts the cycle: what was
    accepted behind it is never emitted."""
    return int(np.minimum(sample.accepted, sample.committed).sum())


def drafted(pair: Compared) -> Addends:
    """Accepted and verified draft tokens; None for a sample that does not say what each cycle
    drafted."""
    own = pair.sample
    return (sum(own.accepted), sum(own.nodes)) if len(own.nodes) == len(own.accepted) else None


def at_position(pair: Compared, position: int) -> Addends:
    """Cycles that accepted so many tokens, and those whose draft was so deep; None as for
    `drafted`."""
    own = pair.sample
    if len(own.levels) != len(own.accepted):
        return None
    return sum(count >= position for count in own.accepted), sum(
        depth >= position for depth in own.levels
    )


def nats(sample: Sample) -> Addends:
    """Nats and emitted tokens."""
    return None if sample.nll is None else (sample.nll, len(sample.output_ids))


def score(pair: Compared) -> Addends:
    """The score, and 1."""
    return None if pair.sample.score is None else (pair.sample.score, 1)


def scores(pair: Compared) -> Addends:
    """The score, the baseline's, and 1, where both are known."""
    own, base = pair.sample.score, pair.baseline.score
    return None if own is None or base is None else (own, base, 1)


def lengths(pair: Compared) -> Addends:
    """Emitted tokens, the baseline's behind."""
    return len(pair.sample.output_ids), len(pair.baseline.output_ids)


def passes(pair: Compared) -> Addends:
    """Forwards of the target after the prefill, the baseline's first."""
    return len(pair.baseline.committed), len(pair.sample.committed)


def capped(pair: Compared) -> Addends:
    """Whether an answer reached the length limit, the same of the baseline's, and 1."""
    return is_capped(pair.sample), is_capped(pair.baseline), 1


def looping(pair: Compared) -> Addends:
    """Whether an answer ends in a loop, the same of the baseline's, and 1."""
    own = loops(pair.sample)
    return own, own if pair.baseline is pair.sample else loops(pair.baseline), 1


def unanswered(pair: Compared) -> Addends:
    """Whether the scorer found no answer, the same of the baseline's, and 1, where both are
    scored."""
    own, base = pair.sample, pair.baseline
    return (
        None
        if own.score is None or base.score is None
        else (own.answer is None, base.answer is None, 1)
    )


class Decoded(Protocol):
    """What is counted of an answer: its tokens, and those committed in each cycle."""

    @property
    def output_ids(self) -> list[int]: ...

    @property
    def committed(self) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class SoFar:
    """Sums over answers.

    answers    prompts answered
    tokens     emitted tokens
    committed  tokens committed in cycles
    cycles     draft–verify cycles
    """

    answers: int = 0
    tokens: int = 0
    committed: int = 0
    cycles: int = 0

    @classmethod
    def of(cls, answers: Iterable[Decoded]) -> Self:
        """Count these answers."""
        sums = [
            (1, len(answer.output_ids), sum(answer.committed), len(answer.committed))
            for answer in answers
        ]
        return cls(*map(sum, zip(*sums, strict=True))) if sums else cls()

    def plus(self, other: SoFar) -> SoFar:
        """Both together."""
        return SoFar(
            self.answers + other.answers,
            self.tokens + other.tokens,
            self.committed + other.committed,
            self.cycles + other.cycles,
        )

    @property
    def tau(self) -> float | None:
        """Tokens committed in a cycle; None without a cycle."""
        return self.committed / self.cycles if self.cycles else None
