"""EARS: raise the acceptance of every token by a share of the target's uncertainty.

    accept x  iff  u < min(1, p(x)/q(x) + tolerance (1 - max_v p(v)));   rejected: norm(max(0, p - q));   bonus: p

p and q are the processed distributions in the context of x; a deterministic candidate has q(x) = 1, and is taken out of
p when it is rejected. Tokens with p(x) = 0 profit too. tolerance = 0 is lossless; no other value is. At temperature 0:
greedy matching.
Source: arXiv 2512.13194 (seen in excerpt); the EARS patch of wings-accel for vllm-ascend, where it was not merged
(default 0, used 0.3 and 0.5). Its variants floor u - tolerance at 0.01, which is another rule.

In docs/rules.md
  accepts  `u < p(x)/q(x) + tolerance (1 - max p)`
  reads    p, q; chains, sampled or deterministic
  emits    norm max(0, p - q)
  strict   `tolerance=0`: lossless
  source   wings-accel, a patch for vllm-ascend (`mtp`, `eagle3` and `suffix` drafts); arXiv 2512.13194
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Sampling, ThresholdView, Verification
from methods.rules.lossless import ThresholdChain, draft_p


class Ears(ThresholdChain):
    """tolerance: share of 1 - max p that is added; the patch was used with 0.3 and 0.5, and is off (0) by default."""

    sampled_only: ClassVar[bool] = False
    tolerance: float = Field(0.3, ge=0.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.tolerance == 0.0

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        score = (v.u - v.p_token / draft_p(v)) / (1.0 - v.at_parent(v.p.amax(-1)))
        return ThresholdView("tolerance", "<", self.tolerance, score, torch.ones_like(lossless), lossless)
