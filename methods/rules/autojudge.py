"""AutoJudge: accept a token that differs from the target's if a classifier finds it unimportant for the answer.

    accept x  iff  x = argmax z  or  P(important | x) < threshold;   correction and bonus: argmax z

z are the target's logits in the context of x's parent. P comes from logistic regression on hidden states at x's own
position (methods/rules/_files.py), trained without human labels: x is important if replacing the target's token by
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

from pydantic import Field
from torch import Tensor

from methods.rules._files import ClassifierRule
from methods.rules.base import Decision, Sampling, ThresholdView, Verification
from methods.rules.lossless import lossless_test


class Autojudge(ClassifierRule):
    """threshold: probability of being important below which a token is kept."""

    threshold: float = Field(0.5, ge=0.0, le=1.0)

    @property
    def needs_draft_hidden(self) -> bool:  # type: ignore[override]  # known once bound
        return self._linear is not None and self._linear.features == "both"

    def emits_argmax(self, sampling: Sampling) -> bool:
        return True

    def decide(self, v: Verification) -> Decision:
        harmless = self.important(v) < self.threshold
        return Decision(v.is_argmax | (harmless & ~v.any_sibling(v.is_argmax)), lossless_test(v))

    def statistics(self, v: Verification) -> dict[str, Tensor]:
        return {"important": self.important(v)}

    def threshold_view(self, v: Verification) -> ThresholdView:
        harmless = v.is_argmax | ~v.any_sibling(v.is_argmax)
        return ThresholdView("threshold", "<", self.threshold, self.important(v), harmless, v.is_argmax)
