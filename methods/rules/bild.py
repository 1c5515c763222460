"""BiLD, rollback policy: keep the small model's tokens until the large model finds one of them far too unlikely.

    the first x_i with  -ln p0(x_i) > rollback  ends the draft: i tokens are kept, and the target's argmax follows;
    if the target's argmax there is x_i itself, or if there is no such x_i, the whole draft is kept

p0 is the target's raw softmax in the context of x_i. The token after the draft is the target's argmax.

Temperature 0 and chains only. No setting is lossless: a draft token within `rollback` nats is kept whatever the target
prefers. A larger rollback can keep less, so traces are not replayed at another. BiLD's fallback policy, drafting until
the small model is unsure, is drafter.stop_below=0.6 with draft.length=10.
Source: Kim et al. 2023, "Speculative Decoding with Big Little Decoder"; kssteven418/BigLittleDecoder ad37f564,
t5/modeling_t5.py: rollback 5 by default, 2 to 5 in its runs.

In docs/rules.md
  accepts  everything before the first x with `-ln p0(x) > rollback`
  reads    raw softmax; chains; T = 0
  emits    argmax z
  strict   none
  source   BiLD: kssteven418/BigLittleDecoder
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveFloat

from methods.rules.base import Decision, Rule, Verification


class Bild(Rule):
    """rollback: largest -ln p0 of a kept draft token, in nats."""

    chain_only: ClassVar[bool] = True
    greedy_only: ClassVar[bool] = True
    local: ClassVar[bool] = False
    rollback: PositiveFloat = 5.0

    def decide(self, v: Verification) -> Decision:
        unlikely = (-v.token_logprob > self.rollback) & v.draft.valid & (v.draft.depth > 0)
        count = unlikely.cumsum(1)
        forgiven = (unlikely & (count == 1) & v.is_argmax).any(1, keepdim=True)
        return Decision((count == 0) | forgiven, v.is_argmax)
