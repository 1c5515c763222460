"""How a cell's time divides: its timed prefill and decoding, split by the phases that a profiling pass measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = ("prefill_share", "draft_time_share", "verify_share", "accept_share", "cycle_ms", "forward_ms", "head_ms",
         "head_share")


def time_shares(prefill_s: float, decode_s: float, phases: Mapping[str, float] | None) -> dict[str, Any]:
    """Shares of prefill and decode time together, and milliseconds of the parts of a cycle; `NAMES` are the keys.

    `phases` are median seconds per cycle: draft, verify, accept, commit and, where the pass measured it, head, the
    LM head's part of verify. Without phases every value is None.

    forward_ms   verify and accept: the target's forward and the decision on the draft
    head_ms      of that, head and accept; head_share is its share of forward_ms"""
    if phases is None or prefill_s + decode_s <= 0:
        return dict.fromkeys(NAMES)
    draft, verify, accept, commit = (phases[name] for name in ("draft", "verify", "accept", "commit"))
    cycle, decoding = draft + verify + accept + commit, decode_s / (prefill_s + decode_s)
    head = None if "head" not in phases else phases["head"] + accept
    return {
        "prefill_share": 1.0 - decoding,
        "draft_time_share": decoding * draft / cycle,
        "verify_share": decoding * verify / cycle,
        "accept_share": decoding * (accept + commit) / cycle,
        "cycle_ms": 1e3 * cycle,
        "forward_ms": 1e3 * (verify + accept),
        "head_ms": None if head is None else 1e3 * head,
        "head_share": None if head is None else head / (verify + accept),
    }
