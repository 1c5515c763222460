"""Files that `bench.train` writes for rules: constants of ARC-Decode, linear classifiers, recorded answers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import torch
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from torch import Tensor

from methods.rules.base import DraftCapabilities, Model, Rule, Sampling, Target, Verification

File = TypeVar("File", bound=BaseModel)
VACUOUS = math.log(2.0)
"""Nats; no Jensen-Shannon divergence is larger."""


class FileMissing(ValueError):
    """A rule without a file that is measured on its models. `key`: the file is that of `pair.KEY`."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def made_by(command: str) -> AfterValidator:
    """For `Annotated[Path, made_by("bench.train calibrate")]`: the file must exist; `command` writes it."""
    def existing(path: Path) -> Path:
        if not path.is_file():
            raise ValueError(f"no such file; `python -m {command}` writes it")
        return path
    return AfterValidator(existing)


def read_json(model: type[File], path: Path, content: str) -> File:
    """The file as a `model`; `content` says in the error what it should hold. Raises ValueError, one line."""
    try:
        return model.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise ValueError(f"{path}: not {content}: {where}{first['msg']}") from error


class Bucket(BaseModel):
    """Constants for contexts of similar entropy.

    c            factor of the embedding distance in U_emb (eq. 10).
    alpha_kappa  factor of the squared log margin in U_logit (eq. 13).
    tau          tolerated divergence, nats (eq. 15).
    n            positions measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    c: float = Field(ge=0)
    alpha_kappa: float = Field(ge=0)
    tau: float = Field(ge=0)
    n: int = Field(ge=1)


class Constants(BaseModel):
    """The file that `bench.train calibrate` writes.

    target       the model they were measured on.
    fingerprint  its weights' fingerprint; constants of another model are refused.
    inv_std      [H] diagonal of W.
    edges        entropies that separate the buckets, ascending.
    buckets      one more than edges.
    provenance   how they were measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    target: str
    fingerprint: str
    inv_std: list[float]
    edges: list[float] = []
    buckets: list[Bucket] = Field(min_length=1)
    provenance: dict[str, Any] = {}

    @property
    def vacuous(self) -> bool:
        """Some bucket tolerates every divergence."""
        return any(bucket.tau >= VACUOUS for bucket in self.buckets)

    @classmethod
    def read(cls, path: Path) -> Constants:
        """Raises ValueError, one line."""
        constants = read_json(cls, path, "constants of bench.train calibrate")
        if len(constants.buckets) != len(constants.edges) + 1:
            raise ValueError(f"{path}: {len(constants.edges)} edges cannot separate {len(constants.buckets)} buckets; "
                             "write the file again with `python -m bench.train calibrate`")
        return constants


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
    def load(cls, path: Path, kind: str, target: Target, model: Model | None) -> Linear:
        """The classifier of a file for these models. Raises ValueError, one line."""
        classifier = Classifier.read(path)
        if classifier.kind != kind:
            raise ValueError(f"rule.classifier={path}: a classifier for rule={classifier.kind}, not rule={kind}")
        wanted: list[tuple[str, str | None, str | None, Model | None]] = [
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

    def bind(self, target: Target, model: Model | None) -> Self:
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


class Answer(BaseModel):
    """Token ids of one greedy answer, and at each place the draft's likeliest token behind the target's tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    answer: list[NonNegativeInt]
    drafted: list[NonNegativeInt]

    @model_validator(mode="after")
    def _equally_many(self) -> Self:
        if len(self.answer) != len(self.drafted):
            raise ValueError(f"{len(self.answer)} tokens of an answer and {len(self.drafted)} drafted ones")
        return self


class Answers(BaseModel):
    """What was recorded, of which models, from which prompts (`corpus`: task, split, number and seed)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    target: str
    fingerprint: str
    draft: str
    draft_fingerprint: str
    corpus: dict[str, Any]
    answers: list[Answer]

    @classmethod
    def read(cls, path: Path, target: Any, option: str) -> Answers:
        """The file `option`=`path` for this target. Raises ValueError, one line."""
        answers = read_json(cls, path, "answers of bench.train mismatches")
        if answers.fingerprint != target.fingerprint:
            raise ValueError(f"{option}={path}: of {answers.target} ({answers.fingerprint}), and the target here is "
                             f"{target.source} ({target.fingerprint}); run `python -m bench.train mismatches` for it")
        return answers

    def mismatches(self) -> Counter[tuple[int, int]]:
        """(drafted token, target's token) -> how often they stood at one place and differed."""
        return Counter((drafted, answered) for answer in self.answers
                       for drafted, answered in zip(answer.drafted, answer.answer, strict=True) if drafted != answered)
