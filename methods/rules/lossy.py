"""Lossy speculative decoding: accept as if the draft had given the token less probability than it did.

    accept x  iff  u < min(1, p(x)/((1 - alpha) q(x)));   rejected: norm(max(0, p - q));   bonus: p

p and q are the processed distributions of target and draft in the context of x. A larger alpha is looser. alpha = 0 is
lossless; no other value is: a token with p < q is kept too often. At temperature 0: greedy matching.
Source: graphcore-research/relaxed-spec-dec-repro c28353fe, `mentored-dec` (arXiv 2607.08690; alpha 0.3, 0.7, 0.95): the
lossy speculative decoding of Zhou et al. 2024 ("DistillSpec") with beta = 1. It is not mentored decoding
(vivien000/mentored_decoding), which solves for a KL budget per token and has another residual.

In docs/rules.md
  accepts  `u (1 - alpha) q(x) < p(x)`
  reads    p, q; sampled chains
  emits    norm max(0, p - q)
  strict   `alpha=0`: lossless
  source   the study arXiv 2607.08690 (`mentored-dec`)
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Sampling, ThresholdView, Verification
from methods.rules.lossless import ThresholdChain


class Lossy(ThresholdChain):
    """alpha: share of the draft's probability that is waived; the study ran 0.3, 0.7 and 0.95."""

    alpha: float = Field(0.3, ge=0.0, lt=1.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.alpha == 0.0

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        score = 1.0 - v.p_token / (v.u * v.q_token)
        return ThresholdView("alpha", "<", self.alpha, score, torch.ones_like(lossless), lossless)
