"""Cactus: raise the acceptance of a drafted token by an amount that bounds the divergence from the target.

    accept x  iff  u < min(1, h/q(x))        h = min(1, p(x) + sqrt(2 delta p(x) (1 - p(x))))
    rejected: draw from norm(max(0, H - q))   H(x) = h,  H(v) = p(v) (1 - h)/(1 - p(x)) elsewhere (p(v) if p(x) = 1)
    bonus: draw from p

p and q are the processed distributions of target and draft in the context of x. The residual depends on x. delta = 0
is lossless; no other value is. At temperature 0: greedy matching.
Source: MANGA-UOFA/Cactus 3b01b816 (default delta 1) and, with the same formula, graphcore-research/
relaxed-spec-dec-repro c28353fe (arXiv 2607.08690; delta 0.1, 0.25, 1, 10).

In docs/rules.md
  accepts  `u q(x) < min(1, p(x) + sqrt(2 delta p(x) (1 - p(x))))`
  reads    p, q; sampled chains
  emits    norm max(0, H - q): the target with p(x) raised to h, without q
  strict   `delta=0`: lossless
  source   Cactus; the study arXiv 2607.08690 (`cactus`)
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Sampling, ThresholdView, Verification
from methods.rules.lossless import ThresholdChain, without_draft


class Cactus(ThresholdChain):
    """delta: size of the relaxation; the study ran 0.1, 0.25, 1 and 10."""

    delta: float = Field(1.0, ge=0.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.delta == 0.0

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        """Accepted iff u q < p, or (u q - p)^2 / (2 p (1 - p)) < delta, which is u q < h."""
        missing = (v.u * v.q_token - v.p_token).clamp(min=0.0)
        score = missing.square() / (2.0 * v.p_token * (1.0 - v.p_token))
        return ThresholdView("delta", "<", self.delta, score, torch.ones_like(lossless), lossless)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        p = v.p_at(node)
        if v.sampling.greedy:
            return p
        child = v.children_of(node).long().argmax(1)  # the root where there is none, and then H is not used
        token = v.at(v.draft.tokens, child)[:, None]
        at_token = p.gather(1, token)
        raised = (at_token + (2.0 * self.delta * at_token * (1.0 - at_token)).sqrt()).clamp(max=1.0)
        scale = torch.where(at_token < 1.0, (1.0 - raised) / (1.0 - at_token), 1.0)
        return without_draft(v, node, (p * scale).scatter(1, token, raised), p)

    def drawn_law(self, p: Tensor, q: Tensor) -> Tensor:
        """R(y) = min(q, h)(y) + sum_x w(x) max(0, s(x) p(y) - q(y)), with s(x) = (1 - h(x))/(1 - p(x)) and w(x) the
        rejected mass of x over the mass of its residual. Tokens x that can be rejected are few; y counts for those with
        s(x) > q(y)/p(y), so that sums over x in the order of s give all y at once."""
        p, q = p.double(), q.double()
        raised = (p + (2.0 * self.delta * p * (1.0 - p)).sqrt()).clamp(max=1.0)
        rejected = (q - raised).clamp(min=0.0)
        scale = ((1.0 - raised) / (1.0 - p)).masked_fill(rejected == 0, -1.0)
        scale, tokens = scale.topk(max(1, int((rejected > 0).sum(-1).max())))
        counts = torch.searchsorted(-scale, -(q / p).nan_to_num(torch.inf))  # [M, V] of the x, in this order
        behind = [torch.zeros(len(p), scale.shape[-1] + 1, dtype=p.dtype, device=p.device).scatter_add_(-1, counts, x)
                  .flip(-1).cumsum(-1).flip(-1)[:, 1:] for x in (p, q)]
        residual = (scale * behind[0] - behind[1]).clamp(min=1e-300)
        weight = (rejected.gather(-1, tokens) / residual).clamp(max=1.0)
        summed = [torch.nn.functional.pad(x.cumsum(-1), (1, 0)).gather(-1, counts) for x in (weight * scale, weight)]
        return q - rejected + (p * summed[0] - q * summed[1]).clamp(min=0.0)
