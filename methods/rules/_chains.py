"""What the rules for chains of sampled tokens share: refusals, greedy matching at temperature 0, one threshold.

In one context x is drawn from q and tested with u; a(x) is the probability of accepting it. Three families:

  threshold   accept x iff a score of x or of its context passes a threshold, or the lossless test u q(x) < p(x) accepts
              it; emit norm(max(0, p - q)) after a rejection, as `lossless` does: `ThresholdChain`.
  pi          a(x) = min(1, pi(x)/q(x)) for a distribution pi other than p; emit norm(max(0, pi - q)) after a
              rejection. The emitted token then has exactly the distribution pi: `without_draft`.
  other       as their files say.

At temperature 0 all of them match greedily: accept x iff it is the target's argmax, emit the argmax.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from methods.rules.base import Rule, ThresholdView
from methods.rules.lossless import lossless_test, residual
from methods.rules.verification import Verification
from methods.rules.walk import Decision


class ChainRule(Rule):
    """A rule for one chain of tokens drawn from q. It emits what `lossless` emits, unless it says otherwise."""

    chain_only: ClassVar[bool] = True
    sampled_only: ClassVar[bool] = True

    def decide(self, v: Verification) -> Decision:
        if v.sampling.greedy:
            return Decision(v.is_argmax)
        lossless = lossless_test(v)
        return Decision(self.accept(v, lossless), lossless)

    @abstractmethod
    def accept(self, v: Verification, lossless: Tensor) -> Tensor:
        """[B, N] bool: the decision above temperature 0; `lossless` [B, N] is that of the lossless test."""

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return residual(v, node)


class ThresholdChain(ChainRule):
    """A rule for chains whose decision is a function of one threshold."""

    @abstractmethod
    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        """`threshold_view` above temperature 0; `lossless` [B, N] is the decision of the lossless test."""

    def accept(self, v: Verification, lossless: Tensor) -> Tensor:
        return self.view(v, lossless).kept

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        return None if v.sampling.greedy else self.view(v, lossless_test(v))


def draft_p(v: Verification) -> Tensor:
    """[B, N] the probability with which each node's token was drafted: q(x), or 1 for a deterministic candidate."""
    return v.q_token if v.draft.sampled else torch.ones_like(v.p_token)


def without_draft(v: Verification, node: Tensor, pi: Tensor, bonus: Tensor) -> Tensor:
    """Weights [B, V] in the context of node [B]: max(0, pi - q) where a child was rejected, `bonus` at a leaf.

    pi, bonus [B, V]; pi and q may be anything at a leaf. Where rounding leaves nothing of pi, pi itself."""
    left = (pi - v.sampling.probs(v.at(v.draft_logits, node))).clamp(min=0.0)
    left = torch.where(left.sum(-1, keepdim=True) > 0, left, pi)
    return torch.where(v.children_of(node).any(1, keepdim=True), left, bonus)
