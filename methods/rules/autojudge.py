"""AutoJudge: accept a token that differs from the target's if a classifier finds it unimportant for the answer.

    accept x  iff  x = argmax z  or  P(important | x) < threshold;   correction and bonus: argmax z

z are the target's logits in the context of x's parent. P comes from logistic regression on hidden states at x's own
position (methods/rules/_classifier.py), trained without human labels: x is important if replacing the target's token by
it changes the final answer (`python -m bench.train judge`). If the argmax and an unimportant token are siblings, the
argmax wins. Threshold 0 is greedy matching at every temperature; the thresholds to try are in the classifier's file.
Garipov et al. 2025; garipovroma/autojudge, whose runs have no bonus token and drafts of 32.

In docs/rules.md
  accepts  `x = argmax z` or `P(important) < threshold`
  reads    z, hidden states of the target (and the draft); any candidates
  emits    argmax z
  strict   `threshold=0`: greedy matching
  source   AutoJudge
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, PrivateAttr
from torch import Tensor

from methods.rules._classifier import Linear
from methods.rules._files import FileMissing, made_by
from methods.rules.base import DraftCapabilities, Rule, ThresholdView
from methods.rules.lossless import lossless_test
from methods.rules.verification import Verification
from methods.rules.walk import Decision
from methods.sampling import Sampling

if TYPE_CHECKING:  # transformers is slow to import
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head


class Autojudge(Rule):
    """threshold: probability of being important below which a token is kept."""

    needs_hidden: ClassVar[bool] = True
    classifier: Annotated[Path, made_by("bench.train judge")] | None = None
    threshold: float = Field(0.5, ge=0.0, le=1.0)
    _linear: Linear | None = PrivateAttr(None)

    @property
    def needs_draft_hidden(self) -> bool:  # type: ignore[override]  # known once bound
        return self._linear is not None and self._linear.features == "both"

    def emits_argmax(self, sampling: Sampling) -> bool:
        return True

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.classifier is None:
            raise FileMissing("autojudge", "rule=autojudge needs a classifier for its pair: train one with `python -m "
                                           "bench.train judge pair=...` and give rule.classifier=FILE")

    def bind(self, target: LanguageModel, model: LanguageModel | Head | None) -> Autojudge:
        assert self.classifier is not None, "check() refuses a rule without a classifier"
        return self.with_classifier(Linear.load(self.classifier, "autojudge", target, model))

    def with_classifier(self, linear: Linear) -> Autojudge:
        bound = self.model_copy()
        bound._linear = linear
        return bound

    def important(self, v: Verification) -> Tensor:
        """[B, N] the classifier's probability for each node."""
        assert self._linear is not None, "the rule is not bound to a pair"
        return self._linear.important(v)

    def decide(self, v: Verification) -> Decision:
        harmless = self.important(v) < self.threshold
        return Decision(v.is_argmax | (harmless & ~v.any_sibling(v.is_argmax)), lossless_test(v))

    def statistics(self, v: Verification) -> dict[str, Tensor]:
        return {"important": self.important(v)}

    def threshold_view(self, v: Verification) -> ThresholdView:
        harmless = v.is_argmax | ~v.any_sibling(v.is_argmax)
        return ThresholdView("threshold", "<", self.threshold, self.important(v), harmless, v.is_argmax)
