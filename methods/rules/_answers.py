"""Answers of a target to training prompts, with what a draft model would have put at each place: a file of
`python -m bench.train mismatches`. `rule=csd` counts its mismatches, `drafter=suffix` copies from its answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, NonNegativeInt, model_validator

from methods.rules._files import read_json


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
