"""What a prompt adds to the sums that metrics are made of."""

from __future__ import annotations

import numpy as np

from results.metrics.answer_speed import addends
from results.metrics.runaways import is_capped, loops
from results.store.sample import Compared, Sample, is_rated

Addends = tuple[float, ...] | None
"""None for a prompt that has none."""


def clock(pair: Compared) -> Addends:
    """Tokens and decode seconds, the baseline's behind."""
    if pair.timed is None:
        return None
    own, base = pair.timed.runs
    return own.tokens, own.decode_s, base.tokens, base.decode_s


def answer_seconds(pair: Compared) -> Addends:
    """Seconds of the whole answer, the baseline's first."""
    if pair.timed is None:
        return None
    own, base = pair.timed.runs
    return base.prefill_s + base.decode_s, own.prefill_s + own.decode_s


def priced(pair: Compared) -> Addends:
    """As `answer_speed.Priced` takes them."""
    return tuple(addends(pair, [""], ""))


def token_ms(pair: Compared) -> Addends:
    """Decode milliseconds and passes of the baseline, where both took a cycle."""
    if pair.timed is None or not is_rated(pair.timed):
        return None
    base = pair.timed.runs[1]
    return 1e3 * base.decode_s, base.cycles


def repeated(pair: Compared) -> Addends:
    """Whether the timed pass decoded the tokens of the quality pass."""
    return None if pair.timed is None else (pair.timed.own.parted is None, 1)


def timed_cycles(pair: Compared) -> Addends:
    """Committed tokens and cycles of a timed prompt."""
    return None if pair.timed is None else (sum(pair.sample.committed), len(pair.sample.committed))


def from_draft(sample: Sample) -> int:
    """Emitted tokens from the draft. An end-of-text token inside a draft cuts the cycle: what was accepted behind it is
    never emitted."""
    return int(np.minimum(sample.accepted, sample.committed).sum())


def drafted(pair: Compared) -> Addends:
    """Accepted and verified draft tokens; None for a sample that does not say what each cycle drafted."""
    own = pair.sample
    return (sum(own.accepted), sum(own.nodes)) if len(own.nodes) == len(own.accepted) else None


def at_position(pair: Compared, position: int) -> Addends:
    """Cycles that accepted so many tokens, and those whose draft was so deep; None as for `drafted`."""
    own = pair.sample
    if len(own.levels) != len(own.accepted):
        return None
    return sum(count >= position for count in own.accepted), sum(depth >= position for depth in own.levels)


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
    """Whether the scorer found no answer, the same of the baseline's, and 1, where both are scored."""
    own, base = pair.sample, pair.baseline
    return None if own.score is None or base.score is None else (own.answer is None, base.answer is None, 1)
