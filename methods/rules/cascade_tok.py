"""Speculative cascade with the token-specific deferral rule: keep a drafted token that the target ranks near its best.

variant
  blend          A = {v : z(v) >= max z + ln(1 - alpha)}, eta = sum of q outside A, pi = q on A, plus eta p everywhere:
                 accept x iff u < min(1, pi(x)/q(x));   rejected: norm(max(0, pi - q));   bonus: p
                 The emitted token has exactly the distribution pi. alpha = 0 keeps only the first argmax in A,
                 alpha = 1 everything that z leaves (all: pi = q).
  lossless_tail  accept x iff p(x) >= (1 - alpha) max_v p(v) (ties included, even at alpha = 0) or the lossless test
                 accepts it;   rejected: norm(max(0, p - q));   bonus: p

NO setting is lossless. blend at alpha = 0 gives the argmax q + eta p in place of p, and off A it is stricter than the
lossless test (eta <= 1): it relaxes and loses accepted tokens at once. lossless_tail at alpha = 0 still accepts the
argmax always. At temperature 0: greedy matching.

top_set (blend)
  paper          z are the raw logits of the target, before temperature, top-k and top-p.
  processed      z are its processed logits.

Source: Narasimhan et al. 2024, "Faster Cascades via Speculative Decoding", section 4.4;
graphcore-research/relaxed-spec-dec-repro c28353fe, `spec-casc-tok` (arXiv 2607.08690; alpha 0, 0.35, 0.8, top_set
paper); lossless_tail: `tok_lt` of chiatzenw-cur/lossy-token-eff 16b878fc (default 0.3, recommended 0.15 to 0.2).

In docs/rules.md
  accepts  `blend`: `u q(x) < pi(x)`, pi = q near the target's best token, and p times the rest of q's mass;
           `lossless_tail`: `p(x) >= (1 - alpha) max p`, else `u q(x) < p(x)`
  reads    z (raw or processed), p, q; sampled chains
  emits    `blend`: norm max(0, pi - q); `lossless_tail`: norm max(0, p - q)
  strict   none
  source   speculative cascades; the study arXiv 2607.08690 (`spec-casc-tok`); lossy-token-eff (`tok_lt`)
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Sampling, ThresholdView, Verification
from methods.rules.lossless import ChainRule, lossless_test, without_draft


class CascadeTok(ChainRule):
    """alpha: how far below the target's best a token may stand. variant, top_set: as above."""

    variant: Literal["blend", "lossless_tail"] = "blend"
    alpha: float = Field(0.35, ge=0.0, le=1.0)
    top_set: Literal["paper", "processed"] = "paper"

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy

    def accept(self, v: Verification, lossless: Tensor) -> Tensor:
        if self.variant == "lossless_tail":
            return lossless | (self._below(v) <= self.alpha)
        return v.u * v.q_token < v.of_token(self._pi(v.logits, v.p, v.q, v))

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        """lossless_tail: the share by which p(x) is below the largest. blend: None, since alpha also decides eta."""
        if self.variant == "blend" or v.sampling.greedy:
            return None
        lossless = lossless_test(v)
        return ThresholdView("alpha", "<=", self.alpha, self._below(v), torch.ones_like(lossless), lossless)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if self.variant == "lossless_tail" or v.sampling.greedy:
            return super().emit(v, node)
        p, q = v.p_at(node), v.sampling.probs(v.at(v.draft_logits, node))
        return without_draft(v, node, self._pi(v.at(v.logits, node), p, q, v), p)

    @staticmethod
    def _below(v: Verification) -> Tensor:
        return 1.0 - v.p_token / v.at_parent(v.p.amax(-1))

    def _pi(self, logits: Tensor, p: Tensor, q: Tensor, v: Verification) -> Tensor:
        """[..., V] from the contexts' raw target logits, p and q, all [..., V]."""
        z = logits if self.top_set == "paper" else v.sampling.process(logits)
        if self.alpha == 0.0:
            top = torch.zeros_like(z, dtype=torch.bool).scatter_(-1, z.argmax(-1, keepdim=True), True)
        else:
            top = z >= z.amax(-1, keepdim=True) + (math.log1p(-self.alpha) if self.alpha < 1.0 else -math.inf)
            top &= z > -math.inf  # what top-k or top-p removed is in no set, at alpha = 1 either
        kept = torch.where(top, q, 0.0)
        return kept + (q - kept).sum(-1, keepdim=True) * p
