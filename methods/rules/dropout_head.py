"""One dropout head in place of the target: decode with DropMatch's i-th head alone (DropMatch, Table 1).

With the head's logits l_i as in `dropmatch` (one mask a token), at temperature 0:

    accept x  iff  x = argmax l_i   in the context of its parent;   correction and bonus: argmax l_i

Each context of the text has one mask, drawn independently, so the text has the distribution of autoregressive decoding
with the head, except for its first token, which the prefill draws from the plain target. With p_drop = 0 this is greedy
decoding of the target. A control, not a method: "relaxed" counts tokens that differ from the target's argmax.

In docs/rules.md
  accepts  x is the argmax of one dropout head; a control
  reads    hidden states and LM head of the target; T = 0
  emits    the argmax of that head
  strict   `p_drop=0`: greedy decoding
  source   a control of this project
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from methods.rules.base import Decision, Model, Rule, Sampling, Target, Verification
from methods.rules.dropmatch import WORD, words


class DropoutHead(Rule):
    """head: i, from 1; heads differ only in their random masks. p_drop: share of hidden units dropped."""

    needs_hidden: ClassVar[bool] = True
    greedy_only: ClassVar[bool] = True
    head: int = Field(1, ge=1, le=1024)
    p_drop: float = Field(0.3, ge=0.0, lt=1.0)
    _head: Callable[[Tensor], Tensor] | None = PrivateAttr(None)

    def bind(self, target: Target, model: Model | None) -> DropoutHead:
        bound = self.model_copy()
        bound._head = target.head
        return bound

    @property
    def own_randomness(self) -> bool:
        return self.p_drop > 0

    def emits_argmax(self, sampling: Sampling) -> bool:
        return False  # the head's argmax, not the target's

    def decide(self, v: Verification) -> Decision:
        return Decision(v.draft.tokens == v.at_parent(self.tokens(v.hidden, v.u)), v.is_argmax)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        token = self.tokens(v.at(v.hidden, node), v.at(v.u, node))
        return torch.zeros_like(v.logits[:, 0]).scatter_(-1, token[:, None], 1.0)

    def tokens(self, hidden: Tensor, u: Tensor) -> Tensor:
        """The head's token in each context: hidden states [..., H] and their uniform numbers [...] -> [...]."""
        size = hidden.shape[-1]
        units = torch.arange(size, device=hidden.device) + (self.head - 1) * size  # as in dropmatch's i-th head
        kept = words(u, units) >= round(self.p_drop * WORD)
        assert self._head is not None, "the rule is not bound to a target"
        return self._head(hidden / (1.0 - self.p_drop) * kept).argmax(-1)
