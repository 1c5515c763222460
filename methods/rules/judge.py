"""Judge decoding: a linear head on the target's hidden state of a draft token says whether the token is right.

    accept x  iff  P(right | x) > 0.5  or  the lossless test accepts x   (greedy matching at temperature 0)

The head reads the target's final-norm state at x's own position and was trained on tokens that people marked as wrong
(weighted cross-entropy; `python -m bench.train judge kind=judge labels=FILE`). Correction and bonus as in `lossless`.
Source: Judge decoding (Bachmann et al. 2025), as ARC-Decode's Appendix A.3.3 compares with it.

In docs/rules.md
  accepts  `P(right) > threshold`, else the lossless test
  reads    hidden states of the target, p; any candidates
  emits    the lossless residual
  strict   `threshold=1`: lossless
  source   judge decoding
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from methods.rules._files import ClassifierRule
from methods.rules.base import Decision, ThresholdView, Verification
from methods.rules.lossless import lossless_test, residual


class Judge(ClassifierRule):
    """threshold: probability of being right above which a token is kept; 1 is `lossless`."""

    training: ClassVar[str] = "bench.train judge kind=judge labels=FILE pair=..."
    threshold: float = Field(0.5, ge=0.0, le=1.0)

    def decide(self, v: Verification) -> Decision:
        right, lossless = 1.0 - self.important(v) > self.threshold, lossless_test(v)
        return Decision(right | lossless, lossless)

    def statistics(self, v: Verification) -> dict[str, Tensor]:
        return {"right": 1.0 - self.important(v)}

    def threshold_view(self, v: Verification) -> ThresholdView:
        always = torch.ones_like(v.draft.tokens, dtype=torch.bool)
        right = 1.0 - self.important(v)
        return ThresholdView("threshold", ">", self.threshold, right, always, lossless_test(v))

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return residual(v, node)
