"""Combine two rules: a draft token is accepted if either accepts it; correction and bonus come from the first.

    accept x  iff  first accepts x  or  second accepts x;   correction and bonus: the first rule's

`first` and `second` are any two rules with their options; both use the same random numbers.
Source: DropMatch, section 4.3, which combines DropMatch with AutoJudge.

In docs/rules.md
  accepts  what one of two rules accepts
  reads    what the two rules read
  emits    that of the first rule
  strict   both rules at their strict limits
  source   DropMatch, section 4.3
"""

from __future__ import annotations

from typing import Any

from pydantic import Field
from torch import Tensor

from methods.rules._nested import Nested, Options, built
from methods.rules.verification import Verification
from methods.rules.walk import Decision


class Either(Nested):
    """first, second: `name` of a rule and its options."""

    first: Options = Field({"name": "dropmatch", "variant": "js", "heads": 5, "p_drop": 0.3,
                            "selection": "argmax", "nucleus": 0.9})
    second: Options = Field({"name": "autojudge", "classifier": None, "threshold": 0.5})

    def model_post_init(self, _: Any) -> None:
        self._rules = (built(self.first), built(self.second))

    def decide(self, v: Verification) -> Decision:
        first, second = (rule.decide(v) for rule in self._rules)
        lossless = second.lossless_accept if first.lossless_accept is None else first.lossless_accept
        return Decision(first.accept | second.accept, lossless, {**first.flags, **second.flags})

    def by_threshold(self, v: Verification) -> Tensor:
        """Accepted, but by neither rule without its threshold."""
        accepted = [rule.decide(v).accept for rule in self._rules]
        relaxed = [rule.by_threshold(v) for rule in self._rules]
        without = [accept & ~only for accept, only in zip(accepted, relaxed, strict=True)]
        return (accepted[0] | accepted[1]) & ~without[0] & ~without[1]

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return self._rules[0].emit(v, node)
