"""Answers of an engine on file: JSON lines, each with

    id          of its prompt
    prompt_ids  token ids of the target's tokenizer; or
    prompt      a text, tokenised as it stands; with neither, the id is that of a prompt of the task
    output_ids  token ids of the answer; or
    text        of the answer, tokenised again
    finish      optional: "stop" where the engine ended the answer, "length" where it was cut
    sample      optional: which of several answers to the prompt

Other fields are not read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from methods.audit import Text
from results.store.errors import first_fault
from results.store.files import append_line, replace_text

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel

TokenIds = Annotated[list[NonNegativeInt], Field(min_length=1)]
MOST_LEFT_OUT = 0.2
"""The share of answers without token ids beyond which those that are left are no fair sample."""


class AnswersError(ValueError):
    """Answers that cannot be used. The message is one line."""


class Answer(BaseModel):
    """A line of the file. `tokens`: how many the engine counted, where it gave text alone."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    id: str
    prompt_ids: TokenIds | None = None
    prompt: str | None = None
    output_ids: list[NonNegativeInt] | None = None
    text: str | None = None
    finish: str | None = None
    sample: int = 0
    tokens: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.id, self.sample


def read(file: Path) -> list[Answer]:
    """The answers of a file; a last line that a kill has torn is left out. Raises AnswersError."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise AnswersError(f"{file}: cannot be read ({error}); give JSON lines") from error
    answers: list[Answer] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            answer = Answer.model_validate_json(line)
        except ValidationError as error:
            if answers and number == len(lines):
                break
            raise AnswersError(f"{file}, line {number}: {first_fault(error)}") from error
        if answer.output_ids is None and answer.text is None:
            raise AnswersError(f"{file}, line {number}: has neither output_ids nor text")
        answers.append(answer)
    if not answers:
        raise AnswersError(f"{file}: holds no answers")
    return answers


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: the prompt's id and which of its answers; its token ids; the seed."""

    id: str
    sample: int
    ids: Sequence[int]
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        return self.id, self.sample


class AnswerFile:
    """Answers as they arrive, each on disk before it counts, with what was asked beside them: the
    same command goes on where one stopped."""

    def __init__(self, folder: Path, name: str, asked: Mapping[str, Any]) -> None:
        """Raises AnswersError for answers of other settings."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path, settings = folder / f"{name}.jsonl", folder / f"{name}.asked.json"
        said = json.dumps(asked, sort_keys=True, indent=1)
        if self.path.exists() and settings.exists():
            before = json.loads(settings.read_text(encoding="utf-8"))
            now = json.loads(said)
            if changed := [key for key in {**before, **now} if before.get(key) != now.get(key)]:
                raise AnswersError(
                    f"{self.path} holds answers of another {', '.join(sorted(changed))}: give "
                    "another output.dir, or remove the file"
                )
        else:
            replace_text(settings, said)
        self.answers: dict[tuple[str, int], Answer] = {}
        if self.path.exists() and self.path.stat().st_size:
            self.answers = {answer.key: answer for answer in read(self.path)}

    def of(self, requests: Sequence[Asked]) -> list[Answer]:
        """The answers to these requests that are there."""
        return [self.answers[request.key] for request in requests if request.key in self.answers]

    def missing(self, requests: Sequence[Asked]) -> list[Asked]:
        return [request for request in requests if request.key not in self.answers]

    def add(self, answer: Answer) -> None:
        append_line(self.path, answer.model_dump_json(exclude_none=True).encode() + b"\n")
        self.answers[answer.key] = answer


@dataclass
class Source:
    """Texts with what is known of them.

    name         what gave them.
    without_end  their end tokens are not among them.
    notes        what a reader of the verdict should know, a line each.
    exact        D of the rule's exact law, nats per token, where Leeway decoded it.
    """

    name: str
    texts: list[Text]
    without_end: bool
    notes: list[str]
    exact: float | None = None


def tokenised(
    name: str,
    answers: Sequence[Answer],
    target: LanguageModel,
    prompts: Mapping[str, Sequence[int]],
    ends: Literal["auto", "kept", "dropped"],
) -> Source:
    """The answers of `name` as token ids of the target. `prompts`: token ids of the task's prompts;
    `ends`: whether the answers hold the end tokens that were drawn; auto: where one does, or all
    say how they finished. Raises AnswersError."""
    only_end = target.eos_ids if len(target.eos_ids) == 1 else ()
    texts, left_out = [], 0
    for answer in answers:
        output = answer.output_ids
        if output is None:
            output = retokenised(answer, target)
            left_out += output is None
        if output and answer.finish == "stop" and output[-1] not in target.eos_ids:
            output = [*output, *only_end]
        if output:
            texts.append(Text(answer.id, prompt_of(answer, target, prompts), output))
    for text in texts:
        largest = max(*text.prompt_ids, *text.output_ids)
        if largest >= target.vocab_size:
            raise AnswersError(
                f"prompt {text.prompt}: {target.source} has no token {largest}; give pair.target= "
                "the model of these answers"
            )
    if left_out > MOST_LEFT_OUT * len(answers):
        raise AnswersError(
            f"{left_out} of {len(answers)} answers are text whose tokens are not known, and the "
            "others are no fair sample of what the engine says; give token ids"
        )
    if ends == "auto":
        tell_finish = all(answer.finish is not None for answer in answers)
        has_end = any(text.output_ids[-1] in target.eos_ids for text in texts)
        ends = "kept" if tell_finish or has_end else "dropped"
    notes = []
    if left_out:
        notes.append(
            f"{left_out} of {len(answers)} answers are left out: their text does not give back the "
            "tokens that were drawn"
        )
    if ends == "dropped":
        notes.append("no answer holds an end token: tokens are compared given that they end none")
    return Source(name, texts, ends == "dropped", notes)


def prompt_of(
    answer: Answer, target: LanguageModel, prompts: Mapping[str, Sequence[int]]
) -> Sequence[int]:
    """Raises AnswersError."""
    if answer.prompt_ids is not None:
        return answer.prompt_ids
    if answer.prompt is not None:
        return target.encode_text(answer.prompt)
    if answer.id in prompts:
        return prompts[answer.id]
    raise AnswersError(
        f"answer {answer.id}: has neither prompt nor prompt_ids, and the task has no prompt of "
        "this id; give one of them"
    )


def retokenised(answer: Answer, target: LanguageModel) -> list[int] | None:
    """The tokens of an answer's text; None where they do not give the text back, or are not as many
    as the engine counted: it drew others for the same text."""
    text = answer.text or ""
    ids = list(target.tokenizer.encode(text, add_special_tokens=False))
    ended = int(answer.finish == "stop")
    if answer.tokens is not None and answer.tokens not in (len(ids), len(ids) + ended):
        return None
    return ids if target.decode(ids, opens=True) == text else None
