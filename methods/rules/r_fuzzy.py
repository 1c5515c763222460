"""Fuzzy acceptance with a lossless fallback: accept every token where the processed distributions are close.

    accept x  iff  D(p, q) <= threshold  or  u < min(1, p(x)/q(x));   rejected: norm(max(0, p - q));   bonus: p

p and q are the processed distributions in the context of x. threshold = 0 is lossless exactly; no other value is. At
temperature 0: greedy matching.

divergence
  js   1/2 KL(p||m) + 1/2 KL(q||m) with m = (p + q)/2, nats, at most ln 2.
  kl   KL(p||q), infinite where q(v) = 0 < p(v). The authors put a floor under q, of 1.2e-38 or 1e-30 in two
       implementations whose decisions differ.

Unlike `fsd`, which compares the raw softmax of greedy drafts and draws from p after every rejection.
Source: graphcore-research/relaxed-spec-dec-repro c28353fe, `r_fuzzy` (arXiv 2607.08690; js 0.05, 0.2, 0.3).

In docs/rules.md
  accepts  everything where `D(p, q) <= threshold`, else `u q(x) < p(x)`
  reads    p, q; sampled chains
  emits    norm max(0, p - q)
  strict   `threshold=0`: lossless
  source   the study arXiv 2607.08690 (`r_fuzzy`)
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Sampling, ThresholdView, Verification
from methods.rules.fsd import divergence
from methods.rules.lossless import ThresholdChain


class RFuzzy(ThresholdChain):
    """threshold: largest divergence at which everything is accepted, nats. divergence: as above."""

    divergence: Literal["js", "kl"] = "js"
    threshold: float = Field(0.2, ge=0.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.threshold == 0.0

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        if self.divergence == "js":
            nats = divergence("js", v.p, v.q)
        else:  # 0 ln 0 = 0, also against q = 0: filtered tokens are common to both
            nats = (torch.xlogy(v.p, v.p) - torch.xlogy(v.p, v.q)).sum(-1)
        score = v.at_parent(nats.clamp(min=torch.finfo(nats.dtype).tiny))  # no rounding passes for a threshold of 0
        return ThresholdView("threshold", "<=", self.threshold, score, torch.ones_like(lossless), lossless)
