"""A control: keep of another rule's tokens only those that the lossless test accepts or that are the argmax.

    accept x  iff  the rule accepts x  and  (the lossless test accepts x  or  x = argmax p);   emits as the rule

The lossless test uses the rule's random numbers. τ of this rule minus τ of `lossless` is the part of the rule's gain
that argmax tokens bring; the rest is relaxation. `results.metrics.tau_gain` splits the gain by likelihood instead.

In docs/rules.md
  accepts  what another rule accepts, where the lossless test accepts it too or it is the argmax; a control
  reads    what that rule reads
  emits    that of the rule
  strict   the rule at its strict limit
  source   this project
"""

from __future__ import annotations

from typing import Any

from pydantic import Field
from torch import Tensor

from methods.rules.base import Decision, Verification
from methods.rules.either import Nested, Options, built


class ArgmaxOnly(Nested):
    """of: `name` of the rule and its options."""

    of: Options = Field({"name": "mars", "variant": "algorithm1", "indicator": "logit_ratio", "theta": 0.9,
                         "q_mode": "exact"})

    def model_post_init(self, _: Any) -> None:
        self._rules = (built(self.of),)

    def decide(self, v: Verification) -> Decision:
        decision = self._rules[0].decide(v)
        return Decision(decision.accept & (decision.lossless | v.is_argmax), decision.lossless_accept, decision.flags)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return self._rules[0].emit(v, node)
