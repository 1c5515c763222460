"""What watches a decode from outside."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from methods.rules.verification import Verification
from methods.rules.walk import Decision, Walk


class Observer:
    """Watches a decode, for untimed passes such as traces. It may wait for the device. What it does not override, it
    ignores."""

    def on_first(self, logits: Tensor, token: Tensor) -> None:
        """Called once, after the prefill: its raw logits [B, V] and the first token [B] of every request."""

    def on_cycle(self, v: Verification, decision: Decision, path: Walk, token: Tensor, u: Tensor,
                 requests: Sequence[int]) -> None:
        """Called once a cycle, after the rule decided and before anything is committed: `token` [B] is the token after
        the kept path, drawn with `u` [B]; `requests` are the places of the batch's rows among the requests. Rows that
        have ended may still be in the batch."""
