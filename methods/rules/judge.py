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

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from methods.rules._classifier import Linear
from methods.rules._files import FileMissing, made_by
from methods.rules.base import DraftCapabilities, Rule, ThresholdView
from methods.rules.lossless import lossless_test, residual
from methods.rules.verification import Verification
from methods.rules.walk import Decision
from methods.sampling import Sampling

if TYPE_CHECKING:  # transformers is slow to import
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head


class Judge(Rule):
    """threshold: probability of being right above which a token is kept; 1 is `lossless`."""

    needs_hidden: ClassVar[bool] = True
    classifier: Annotated[Path, made_by("bench.train judge")] | None = None
    threshold: float = Field(0.5, ge=0.0, le=1.0)
    _linear: Linear | None = PrivateAttr(None)

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.classifier is None:
            raise FileMissing("judge", "rule=judge needs a head for its target: train one with `python -m bench.train "
                                       "judge kind=judge labels=FILE pair=...` and give rule.classifier=FILE")

    def bind(self, target: LanguageModel, model: LanguageModel | Head | None) -> Judge:
        assert self.classifier is not None, "check() refuses a rule without a classifier"
        return self.with_classifier(Linear.load(self.classifier, "judge", target, model))

    def with_classifier(self, linear: Linear) -> Judge:
        bound = self.model_copy()
        bound._linear = linear
        return bound

    def important(self, v: Verification) -> Tensor:
        """[B, N] the classifier's probability for each node."""
        assert self._linear is not None, "the rule is not bound to a pair"
        return self._linear.important(v)

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
