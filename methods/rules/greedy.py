"""Greedy verification: accept the token that the target itself would emit at temperature 0.

    accept x  iff  x = argmax_v z(v);   correction and bonus: argmax_v z(v)

z are the raw target logits in the context of x's parent, the first one of a tie. Output equals autoregressive greedy
decoding token by token (in float32; lower precisions round differently for different matrix shapes).
Source: exact-match verification, e.g. MARS eq. 1. No options, no random numbers, no draft distribution.

In docs/rules.md
  accepts  `x = argmax z`
  reads    z; any candidates; T = 0
  emits    argmax z
  strict   always: greedy decoding
  source   every engine at temperature 0
"""

from __future__ import annotations

from typing import ClassVar

from methods.rules.base import Decision, Rule, Sampling, Verification


class Greedy(Rule):
    greedy_only: ClassVar[bool] = True

    def is_lossless(self, sampling: Sampling) -> bool:
        return True

    def decide(self, v: Verification) -> Decision:
        return Decision(v.is_argmax)
