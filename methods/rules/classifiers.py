"""Rules that a linear classifier on hidden states decides; `python -m models.train judge` trains
it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from methods.options import StrictOptions
from methods.rules._files import FileMissing, check_model, made_by, read_json
from methods.rules.base import (
    Decision,
    DraftCapabilities,
    Model,
    NamedTensors,
    Rule,
    Sampling,
    Target,
    ThresholdView,
    Verification,
)
from methods.rules.lossless import ThresholdRule, lossless_test, residual

Features = Literal["both", "target"]


class Classifier(StrictOptions):
    """A file of `python -m models.train judge`: logistic regression on F features of a draft token.

    kind               name of the rule that it is for.
    target             the target that it was trained on.
    fingerprint        of that target's weights.
    draft              the draft model that it was trained on, where it reads its states.
    draft_fingerprint  of that draft's weights.
    features           "both": the draft's hidden state, then the target's; "target": that alone.
    mean, scale        [F] each: a feature is used as (feature - mean) / scale.
    coef, intercept    [F], and a number: their logit is that of being important.
    thresholds         worth trying: quantiles of the probabilities on held-out prompts.
    provenance         how it was trained, and how well it separated held-out prompts.
    """

    kind: Literal["autojudge", "judge"]
    target: str
    fingerprint: str
    draft: str | None = None
    draft_fingerprint: str | None = None
    features: Features
    mean: list[float]
    scale: list[float]
    coef: list[float] = Field(min_length=1)
    intercept: float
    thresholds: list[float] = Field([])
    provenance: dict[str, Any] = Field({})

    @classmethod
    def read(cls, path: Path) -> Classifier:
        """The classifier in a file. Raises ValueError, one line."""
        classifier = read_json(cls, path, "a classifier of models.train judge")
        if not len(classifier.mean) == len(classifier.scale) == len(classifier.coef):
            raise ValueError(
                f"{path}: mean, scale and coef have {len(classifier.mean)}, "
                f"{len(classifier.scale)} and {len(classifier.coef)} entries, not equally many; "
                "write the file again with `python -m models.train judge`"
            )
        return classifier


class ClassifierRule(Rule):
    """A rule that asks a classifier about every draft token.

    classifier  file of a `Classifier`."""

    training: ClassVar[str] = "models.train judge pair=..."
    """The command that makes the rule's file."""
    classifier: Annotated[Path, made_by("models.train judge")] | None = None
    _features: Features = PrivateAttr("target")
    _weight: Tensor | None = PrivateAttr(None)  # [F], for features that are not scaled
    _bias: Tensor | None = PrivateAttr(None)  # []

    def needs_hidden(self) -> bool:
        return True

    def needs_draft_hidden(self) -> bool:
        return self._features == "both"

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.classifier is None:
            raise FileMissing(
                self.name,
                f"rule={self.name} needs a classifier for its pair: train one with `python -m "
                f"{self.training}` and give rule.classifier=FILE",
            )

    def bind(self, target: Target, model: Model | None) -> Self:
        assert self.classifier is not None, "check() refuses a rule without a classifier"
        classifier, option = Classifier.read(self.classifier), f"rule.classifier={self.classifier}"
        if classifier.kind != self.name:
            raise ValueError(
                f"{option}: a classifier for rule={classifier.kind}, not rule={self.name}"
            )
        check_model(
            option,
            "models.train judge",
            "target",
            classifier.target,
            classifier.fingerprint,
            target,
        )
        if classifier.features == "both":
            check_model(
                option,
                "models.train judge",
                "draft",
                classifier.draft,
                classifier.draft_fingerprint,
                model,
            )
        return self.with_classifier(classifier, target.device)

    def with_classifier(self, classifier: Classifier, device: torch.device | str = "cpu") -> Self:
        """The rule with this classifier, whatever models it was trained on."""
        # scaling becomes part of the weights: ((x - mean) / scale) · coef + intercept
        # = x · (coef / scale) + (intercept - mean · coef / scale)
        mean, scale, coef = (
            torch.tensor(x, dtype=torch.float64)
            for x in (classifier.mean, classifier.scale, classifier.coef)
        )
        weight, bound = coef / scale, self.model_copy()
        bound._features, bound._weight = classifier.features, weight.float().to(device)
        bound._bias = (classifier.intercept - (mean * weight).sum()).float().to(device)
        return bound

    def important(self, v: Verification) -> Tensor:
        """[B, N] float: the probability, for each node's token, of what the labels call important.
        In `Judge` that is a wrong token."""
        assert self._weight is not None and self._bias is not None, (
            "the rule is not bound to a pair"
        )
        hidden = v.hidden
        if self._features == "both":
            assert v.draft.hidden is not None, "the drafter gave no hidden states"
            hidden = torch.cat([v.draft.hidden, hidden], -1)
        return (hidden.float() @ self._weight + self._bias).sigmoid()


class Autojudge(ClassifierRule):
    """AutoJudge: accept a token that differs from the target's if a classifier finds it unimportant
    for the answer.

        accept x  iff  x = argmax z  or  P(important | x) < threshold

    z are the target's logits in the context of x's parent. Correction and bonus are the argmax as
    well. P comes from logistic regression on hidden states at x's own position. It is trained
    without human labels: x is important if the final answer changes where x replaces the target's
    token (`python -m models.train judge`). If the argmax and an unimportant token are siblings, the
    argmax wins. Threshold 0 is greedy matching at every temperature. The thresholds to try are in
    the classifier's file.

    Source: AutoJudge (Garipov et al. 2025; garipovroma/autojudge, whose runs have no bonus token
    and drafts of 32 tokens).

    threshold: probability of being important below which a token is kept."""

    threshold: float = Field(0.5, ge=0.0, le=1.0)

    def emits_argmax(self, sampling: Sampling) -> bool:
        return True

    def decide(self, v: Verification) -> Decision:
        harmless = self.important(v) < self.threshold
        return Decision(v.is_argmax | (harmless & ~v.any_sibling(v.is_argmax)), lossless_test(v))

    def statistics(self, v: Verification) -> NamedTensors:
        return {"important": self.important(v)}

    def threshold_view(self, v: Verification) -> ThresholdView:
        # of tokens below the threshold: the argmax, and those without the argmax as a sibling
        harmless = v.is_argmax | ~v.any_sibling(v.is_argmax)
        return ThresholdView(
            "threshold", "<", self.threshold, self.important(v), harmless, v.is_argmax
        )


class Judge(ClassifierRule, ThresholdRule):
    """Judge decoding: a linear head on the target's hidden state of a draft token says whether the
    token is right.

        accept x  iff  P(right | x) > threshold  or  the lossless test accepts x

    The paper's threshold is 0.5. At temperature 0 the lossless test is greedy matching. The head
    reads the target's final-norm state at x's own position. It was trained on tokens that people
    marked as wrong (weighted cross-entropy; `python -m models.train judge kind=judge labels=FILE`),
    so that P(right | x) = 1 - `important`. Correction and bonus as in `lossless`.

    Source: Judge decoding (Bachmann et al. 2025), as ARC-Decode's Appendix A.3.3 compares with it.

    threshold: probability of being right above which a token is kept; 1 is `lossless`."""

    training = "models.train judge kind=judge labels=FILE pair=..."
    threshold: float = Field(0.5, ge=0.0, le=1.0)

    def statistics(self, v: Verification) -> NamedTensors:
        return {"right": 1.0 - self.important(v)}

    def threshold_view(self, v: Verification) -> ThresholdView:
        return self.threshold_on("threshold", ">", 1.0 - self.important(v), lossless_test(v))

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return residual(v, node)
