"""FLy: keep a mismatch where the target is unsure, if the drafted tokens behind it match again.

The drafted tokens of a chain are x_0 ... x_(K-1), t_i the target's argmax in the context of x_i, p0 its raw softmax
there. x_i is accepted iff x_i = t_i, or if both hold:

    gate      -sum over the three likeliest tokens of p0 ln p0  >=  entropy      (nats, not renormalised)
    window    i <= K - 1 - window   and   x_j = t_j for j = i+1 ... i+window-1

The first rejection ends the chain; the target's argmax follows. A window of W thus needs W - 1 matches behind the
mismatch and one more position; with K < window + 1 nothing is relaxed, and the last `window` positions never are.
no_window=true drops the second condition. The gate is open everywhere for entropy <= 0.01.

Temperature 0 and chains only: the released code's variants for T > 0 and for trees are not offered. A setting is
lossless only if it relaxes nothing: entropy > ln 3, or a window of at least K.
Source: arXiv 2511.22972; AMD-AGI/FLy 6667ae84, whose run has K = 15 and an n-gram drafter in front of the draft model.

In docs/rules.md
  accepts  `x = argmax z`, or an unsure target and `window - 1` matches behind the mismatch
  reads    raw softmax; chains; the following positions; T = 0
  emits    argmax z
  strict   `window` of at least K: greedy matching
  source   FLy: AMD-AGI/FLy
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from methods.rules.base import Decision, Rule, ThresholdView, Verification

TOP = 3
ALWAYS_OPEN = 0.01


class Fly(Rule):
    """Options of FLy.

    window     W: x_i is followed by W - 1 matches and one more position.
    entropy    smallest partial entropy, in nats, at which a mismatch may be kept.
    no_window  the gate alone decides.
    """

    chain_only: ClassVar[bool] = True
    greedy_only: ClassVar[bool] = True
    local: ClassVar[bool] = False
    window: PositiveInt = 6
    entropy: float = Field(0.3, ge=0.0)
    no_window: bool = False

    def decide(self, v: Verification) -> Decision:
        return Decision(self.threshold_view(v).kept, v.is_argmax)

    def threshold_view(self, v: Verification) -> ThresholdView:
        confirmed = torch.ones_like(v.is_argmax) if self.no_window else self._confirmed(v)
        return ThresholdView("entropy", ">=", self.entropy, v.at_parent(self._partial_entropy(v.logits)),
                             v.is_argmax | confirmed, v.is_argmax)

    @staticmethod
    def _partial_entropy(logits: Tensor) -> Tensor:
        """[B, N] nats, at least ALWAYS_OPEN: a gate of that passes every context."""
        top = logits.topk(min(TOP, logits.shape[-1]), dim=-1).values - logits.logsumexp(-1, keepdim=True)
        return (-(top.exp() * top).sum(-1)).clamp(min=ALWAYS_OPEN)

    def _confirmed(self, v: Verification) -> Tensor:
        """[B, N] bool: the next window - 1 drafted tokens match, and one more follows."""
        matches = v.is_argmax.cumsum(1)
        node = torch.arange(v.draft.nodes, device=matches.device)  # node i + 1 holds x_i
        last = (node + self.window - 1).clamp(max=v.draft.nodes - 1)
        return (matches[:, last] - matches == self.window - 1) & (node <= (v.drafted - self.window)[:, None])
