"""Files that `models.train` writes for rules and drafters; the answers that csd and suffix read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    NonNegativeInt,
    ValidationError,
    model_validator,
)

File = TypeVar("File", bound=BaseModel)


class FileMissing(ValueError):
    """A rule without a file that is measured on its models. `key`: the file is that of
    `pair.KEY`."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def made_by(command: str) -> AfterValidator:
    """For `Annotated[Path, made_by("models.train calibrate")]`: the file must exist; `command`
    writes it."""

    def existing(path: Path) -> Path:
        if not path.is_file():
            raise ValueError(f"no such file; `python -m {command}` writes it")
        return path

    return AfterValidator(existing)


def read_json(model: type[File], path: Path, content: str) -> File:
    """The file as a `model`; `content` says in the error what it should hold. Raises ValueError,
    one line."""
    try:
        return model.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise ValueError(f"{path}: not {content}: {where}{first['msg']}") from error


def check_model(
    option: str, command: str, role: str, source: str | None, fingerprint: str | None, given: Any
) -> None:
    """Refuse the file `option` that `command` made with another model than that in its role. Raises
    ValueError, one line."""
    if given is None or given.fingerprint != fingerprint:
        has = "none" if given is None else f"{given.source} ({given.fingerprint})"
        raise ValueError(
            f"{option}: made with the {role} {source} ({fingerprint}), and the {role} here is "
            f"{has}; run `python -m {command}` for this pair"
        )


class Answer(BaseModel):
    """Token ids of one greedy answer, and at each place the draft's likeliest token behind the
    target's tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    answer: list[NonNegativeInt]
    drafted: list[NonNegativeInt]

    @model_validator(mode="after")
    def _equally_many(self) -> Self:
        if len(self.answer) != len(self.drafted):
            raise ValueError(
                f"{len(self.answer)} tokens of an answer and {len(self.drafted)} drafted ones"
            )
        return self


class Answers(BaseModel):
    """What was recorded, of which models, from which prompts (`corpus`: task, split, number and
    seed)."""

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
        answers = read_json(cls, path, "answers of models.train mismatches")
        check_model(
            f"{option}={path}",
            "models.train mismatches",
            "target",
            answers.target,
            answers.fingerprint,
            target,
        )
        return answers

    def mismatches(self) -> Counter[tuple[int, int]]:
        """(drafted token, target's token) -> how often they stood at one place and differed."""
        return Counter(
            (drafted, answered)
            for answer in self.answers
            for drafted, answered in zip(answer.drafted, answer.answer, strict=True)
            if drafted != answered
        )
