"""Answers that do not end by themselves: at the length limit, or in a loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from results.store.sample import Sample

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
    """Whether the last max(64, 4 d) tokens repeat with a period d ≤ 200: the runaway form, high acceptance without
    end."""
    tail = np.asarray(ids)
    longest = min(LOOP_PERIOD, len(tail) // LOOP_TURNS)
    repeated: list[int] = (1 + np.flatnonzero(tail[-1 - longest:-1][::-1] == tail[-1])).tolist() if longest else []
    for period in repeated:
        size = max(LOOP_TOKENS, LOOP_TURNS * period)
        if size <= len(tail) and (tail[-size:-period] == tail[len(tail) - size + period:]).all():
            return True
    return False


def censoring(baseline_cap_hit_share: float | None) -> str:
    """Why lengths of this cell cannot be compared, as a footnote; empty where they can."""
    if baseline_cap_hit_share is None or baseline_cap_hit_share <= CENSORED_ABOVE:
        return ""
    return f"censored: {baseline_cap_hit_share:.0%} of the lossless answers end at the length limit"


def _turns(run: Sample) -> Iterator[Sequence[int]]:
    """The tokens of each turn."""
    ends = np.cumsum(run.turn_tokens)
    for size, end in zip(run.turn_tokens, ends.tolist(), strict=True):
        yield run.output_ids[end - size:end]
