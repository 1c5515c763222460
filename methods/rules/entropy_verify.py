"""Entropy verification of vllm-ascend: the less certain the target, the more the acceptance is raised.

    accept x  iff  u < min(1, p(x)/(theta q(x)))        theta = min(exp(-alpha H), threshold)
    rejected: norm(max(0, p - q));   bonus: p

p and q are the processed distributions in the context of x; a deterministic candidate has q(x) = 1, and is taken out of
p when it is rejected. H = -sum_v p0(v) ln(p0(v) + 1e-10), nats, of p0 = softmax of the raw logits. At temperature 0:
greedy matching.

alpha = 0 with threshold = 1 is lossless. The DEFAULTS never are, whatever the entropy: theta <= 0.95 raises every
acceptance.
Source: vllm-project/vllm-ascend 182b75ea, vllm_ascend/sample/rejection_sampler.py (defaults 0.95 and 0.4; its tests
also use alpha 1). There H is that of the processed logits where processed log-probabilities were asked for, since these
are scaled in place.

In docs/rules.md
  accepts  `u theta q(x) < p(x)`, theta = min(exp(-alpha H), threshold)
  reads    p, q, entropy of the raw softmax; chains, sampled or deterministic
  emits    norm max(0, p - q)
  strict   `alpha=0 threshold=1`: lossless; the defaults are not
  source   vllm-ascend: `rejection_sampler_config` with `enable_entropy_verify`, `posterior_threshold=threshold`,
           `posterior_alpha=alpha`
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Sampling, ThresholdView, Verification
from methods.rules.lossless import ThresholdChain, draft_p

EPSILON = 1e-10


class EntropyVerify(ThresholdChain):
    """threshold: largest theta. alpha: how fast theta falls with the entropy."""

    sampled_only: ClassVar[bool] = False
    threshold: float = Field(0.95, gt=0.0, le=1.0)
    alpha: float = Field(0.4, ge=0.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or (self.threshold == 1.0 and self.alpha == 0.0)

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        """The smaller of two numbers is exceeded where one of them is."""
        p0 = v.logits.softmax(-1)
        entropy = -(p0 * (p0 + EPSILON).log()).sum(-1)
        ratio = v.p_token / (v.u * draft_p(v))
        uncertain = ratio > v.at_parent((-self.alpha * entropy).exp())
        return ThresholdView("threshold", ">", self.threshold, ratio, torch.ones_like(lossless), lossless | uncertain)

    def by_threshold(self, v: Verification) -> Tensor:
        """Accepted because of `threshold` or `alpha`: not by the lossless test."""
        decision = self.decide(v)
        return decision.accept & ~decision.lossless
