"""A linear classifier on hidden states that says whether a draft token matters: its file, and its use in a rule.

Input of a node: the final-norm hidden states at the draft token's own position, that is with the token already read, of
the target, or of the draft model and the target one behind the other (DD and DT in AutoJudge's code). With the mean and
scale of a StandardScaler, P(important) = sigmoid(coef . (x - mean)/scale + intercept). The file is JSON, written by
`python -m bench.train judge`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from torch import Tensor

from methods.rules._files import FileMissing, made_by, read_json
from methods.rules.base import DraftCapabilities, Rule
from methods.rules.verification import Verification
from methods.sampling import Sampling

if TYPE_CHECKING:  # transformers is slow to import
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head

Features = Literal["both", "target"]


class Classifier(BaseModel):
    """What was trained, on which models, and how well it separated held-out prompts (`provenance`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
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
    thresholds: list[float] = []
    provenance: dict[str, Any] = {}

    @classmethod
    def read(cls, path: Path) -> Classifier:
        """Raises ValueError, one line."""
        classifier = read_json(cls, path, "a classifier of bench.train judge")
        if not len(classifier.mean) == len(classifier.scale) == len(classifier.coef):
            raise ValueError(f"{path}: mean, scale and coef have {len(classifier.mean)}, {len(classifier.scale)} and "
                             f"{len(classifier.coef)} entries, not equally many; write the file again with `python -m "
                             "bench.train judge`")
        return classifier


@dataclass(frozen=True, slots=True)
class Linear:
    """The classifier on its device: `weight` [F] and `bias` [], scaling included."""

    features: Features
    weight: Tensor
    bias: Tensor

    @classmethod
    def load(cls, path: Path, kind: str, target: LanguageModel, model: LanguageModel | Head | None) -> Linear:
        """The classifier of a file for these models. Raises ValueError, one line."""
        classifier = Classifier.read(path)
        if classifier.kind != kind:
            raise ValueError(f"rule.classifier={path}: a classifier for rule={classifier.kind}, not rule={kind}")
        wanted: list[tuple[str, str | None, str | None, LanguageModel | Head | None]] = [
            ("target", classifier.target, classifier.fingerprint, target)]
        if classifier.features == "both":
            wanted.append(("draft", classifier.draft, classifier.draft_fingerprint, model))
        for role, source, fingerprint, given in wanted:
            if given is None or given.fingerprint != fingerprint:
                has = "none" if given is None else f"{given.source} ({given.fingerprint})"
                raise ValueError(f"rule.classifier={path}: trained with the {role} {source} ({fingerprint}), and the "
                                 f"{role} here is {has}; run `python -m bench.train judge` for this pair")
        return cls.of(classifier, target.device)

    @classmethod
    def of(cls, classifier: Classifier, device: torch.device | str) -> Linear:
        mean, scale, coef = (torch.tensor(x, dtype=torch.float64)
                             for x in (classifier.mean, classifier.scale, classifier.coef))
        weight = coef / scale
        bias = classifier.intercept - (mean * weight).sum()
        return cls(classifier.features, weight.float().to(device), bias.float().to(device))

    def important(self, v: Verification) -> Tensor:
        """[B, N] P(important) of each node's token."""
        hidden = v.hidden
        if self.features == "both":
            assert v.draft.hidden is not None, "the drafter gave no hidden states"
            hidden = torch.cat([v.draft.hidden, hidden], -1)
        return (hidden.float() @ self.weight + self.bias).sigmoid()


class ClassifierRule(Rule):
    """A rule that a classifier decides, which `python -m bench.train judge` trains."""

    needs_hidden: ClassVar[bool] = True
    training: ClassVar[str] = "bench.train judge pair=..."
    """The command that makes the rule's file."""
    classifier: Annotated[Path, made_by("bench.train judge")] | None = None
    _linear: Linear | None = PrivateAttr(None)

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.classifier is None:
            raise FileMissing(self.name, f"rule={self.name} needs a classifier for its pair: train one with `python -m "
                                         f"{self.training}` and give rule.classifier=FILE")

    def bind(self, target: LanguageModel, model: LanguageModel | Head | None) -> Self:
        assert self.classifier is not None, "check() refuses a rule without a classifier"
        return self.with_classifier(Linear.load(self.classifier, self.name, target, model))

    def with_classifier(self, linear: Linear) -> Self:
        bound = self.model_copy()
        bound._linear = linear
        return bound

    def important(self, v: Verification) -> Tensor:
        """[B, N] the classifier's probability for each node."""
        assert self._linear is not None, "the rule is not bound to a pair"
        return self._linear.important(v)
