"""Refuse what no decoding can have counted, so that a wrong file gives no number."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

from results.exchange.base import Exchanged

MOST = 1 << 53
"""Largest count: up to it float64 holds every integer."""
LONGEST_CYCLE = 4097
"""Tokens that one cycle can commit: a draft of 4096 and the bonus."""
DEEPEST = 64
"""Levels of a JSON value; no format has ten."""


def check_depth(data: Any) -> None:
    """Raises ValueError for plain data with more than `DEEPEST` levels."""
    level, here = 0, [data]
    while here:
        level += 1
        if level > DEEPEST:
            raise ValueError(f"more than {DEEPEST} levels of nesting")
        here = [one for value in here if isinstance(value, dict | list)
                for one in (value.values() if isinstance(value, dict) else value)]


def check(answer: Exchanged) -> None:
    """Raises ValueError, one line that begins with the field, for numbers out of bounds, and for counts that contradict
    each other.

    Tokens may exceed what the cycles committed by one a turn, which the prefill emits; the cycles may have committed
    more by one cycle a turn, which an end or a limit cut."""
    for name in ("tokens", "steps", "committed", "accepted", "proposed", "histogram"):
        _check_range(name, getattr(answer, name) or ())
    for name in ("drafted", "draft_length", "prompt_tokens"):
        _check_range(name, [getattr(answer, name) or 0])
    for seconds in (*(answer.seconds or ()), answer.prefill_s or 0.0):
        if not isfinite(seconds) or not 0 <= seconds <= MOST:
            raise ValueError(f"seconds: {seconds:.3g} is no time of an answer")
    for name in ("committed", "accepted", "proposed"):
        if (largest := max(getattr(answer, name) or (), default=0)) > LONGEST_CYCLE:
            raise ValueError(f"{name}: {largest} tokens in one cycle; at most {LONGEST_CYCLE} are believed")
    _check_drafts(answer)
    turns = max(len(answer.texts or ()), len(answer.tokens or ()), 1)
    _check_cycles(answer, turns)


def _check_range(name: str, counts: Iterable[int]) -> None:
    for count in counts:
        if not 0 <= count <= MOST:
            raise ValueError(f"{name}: {str(count)[:20]} is out of bounds; a count is 0 to 2^53")


def _check_drafts(answer: Exchanged) -> None:
    """Compare accepted and proposed draft tokens."""
    accepted, proposed = answer.accepted, answer.proposed
    if accepted is not None and proposed is not None:
        if len(accepted) != len(proposed):
            raise ValueError(f"proposed: {len(proposed)} cycles, but accepted has {len(accepted)}")
        if more := [pair for pair in zip(accepted, proposed, strict=True) if pair[0] > pair[1]]:
            raise ValueError(f"accepted: {more[0][0]} of {more[0][1]} draft tokens in one cycle")
    if accepted is not None and answer.drafted is not None and sum(accepted) > answer.drafted:
        raise ValueError(f"accepted: {sum(accepted)} of {answer.drafted} draft tokens")


def _check_cycles(answer: Exchanged, turns: int) -> None:
    """Compare tokens, steps and committed tokens."""
    tokens = None if answer.tokens is None else sum(answer.tokens)
    steps = None if answer.steps is None else sum(answer.steps)
    if tokens is not None and steps is not None and not steps - turns <= tokens <= turns + LONGEST_CYCLE * steps:
        raise ValueError(f"tokens: {tokens} in {steps} cycles; each commits 1 to {LONGEST_CYCLE}")
    if (cycles := answer.committed) is None:
        least = sum((accepted + 1) * count for accepted, count in enumerate(answer.histogram or ()))
        if tokens is not None and tokens < least - turns * len(answer.histogram or ()):
            raise ValueError(f"tokens: {tokens}, but the histogram's cycles committed {least}")
        return
    if steps is not None and abs(len(cycles) - steps) > turns:
        raise ValueError(f"committed: {len(cycles)} cycles, but the answer has {steps}")
    committed, cut = sum(cycles), turns * max(cycles, default=0)
    if tokens is not None and not committed - cut <= tokens <= committed + turns:
        raise ValueError(f"committed: {committed} tokens in all cycles, but the answer has {tokens}")
