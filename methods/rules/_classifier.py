"""A linear classifier on hidden states that says whether a draft token matters: its file, and its use in a rule.

Input of a node: the final-norm hidden states at the draft token's own position, that is with the token already read, of
the target, or of the draft model and the target one behind the other (DD and DT in AutoJudge's code). With the mean and
scale of a StandardScaler, P(important) = sigmoid(coef . (x - mean)/scale + intercept). The file is JSON, written by
`python -m bench.train judge`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from methods.rules._files import read_json
from methods.rules.verification import Verification

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
