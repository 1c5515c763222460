"""prompts: a user's own prompts from a file of rows. They have no right answer, so there is no
score.

A row has an `id` and one of
    prompt      text, tokenised as it stands
    messages    [{"role": …, "content": …}, …]: an optional system message, the conversation so far,
                and at the end the user messages to answer, one turn each
    input_ids   token ids of the target's tokenizer
Other fields are not read, which a warning says; task=dataset reads any field and scores answers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import date
from functools import cache
from itertools import takewhile
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tasks.base import (
    MOST_NEW_TOKENS,
    ControlTokens,
    LocalFile,
    Prompt,
    Score,
    Task,
    TaskError,
    TaskOptions,
)
from tasks.sources import RowSource

log = logging.getLogger(__name__)
PLAIN = {
    "missing": "missing",
    "too_short": "is empty",
    "string_too_short": "is empty",
    "string_type": "must be a string",
}
"""Kind of a complaint of pydantic -> what a message says instead."""
Text = Annotated[str, Field(min_length=1)]


class PromptsOptions(TaskOptions):
    """`path`: the file. `control_tokens`: what the string of a control token in a message is."""

    path: LocalFile
    # later, as `date`
    control_tokens: ControlTokens = Field("refuse", exclude_if=lambda kind: kind == "refuse")
    max_new_tokens: int = Field(256, ge=1, le=MOST_NEW_TOKENS)


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    role: Literal["system", "user", "assistant"]
    content: Text


class _PromptRow(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    id: Annotated[Text, Field(coerce_numbers_to_str=True)]
    prompt: Text | None = None
    messages: Annotated[tuple[_Message, ...], Field(min_length=1)] | None = None
    input_ids: (
        Annotated[tuple[Annotated[int, Field(ge=0, strict=True)], ...], Field(min_length=1)] | None
    ) = None

    @model_validator(mode="after")
    def _one_prompt(self) -> _PromptRow:
        forms = [
            name for name in ("prompt", "messages", "input_ids") if getattr(self, name) is not None
        ]
        if len(forms) != 1:
            raise ValueError(
                "needs exactly one of prompt, messages, input_ids; has "
                f"{' and '.join(forms) or 'none'}"
            )
        roles = [message.role for message in self.messages or ()]
        if "system" in roles[1:]:
            raise ValueError("messages: a system message may only come first")
        if roles and roles[-1] != "user":
            raise ValueError(
                "messages: the last message must be the user's, it is what will be answered"
            )
        return self

    def as_prompt(self, control_tokens: ControlTokens, day: date | None) -> Prompt:
        if self.messages is None:
            return Prompt(
                self.id, text=self.prompt, input_ids=self.input_ids, control_tokens=control_tokens
            )
        system = self.messages[0].content if self.messages[0].role == "system" else None
        talk = self.messages[system is not None :]
        turns = tuple(
            message.content for message in takewhile(lambda m: m.role == "user", reversed(talk))
        )[::-1]
        prefix = tuple(
            (message.role, message.content) for message in talk[: len(talk) - len(turns)]
        )
        return Prompt(
            self.id,
            turns=turns,
            system=system,
            prefix=prefix,
            control_tokens=control_tokens,
            date=day,
        )


class Prompts(Task):
    """The rows of a file; there is no score."""

    name = "prompts"
    version = 1
    metric = "none"
    proportion = False

    def __init__(self, options: PromptsOptions) -> None:
        self.path = self._file = options.path
        self._control_tokens = options.control_tokens
        self._date = options.date

    def prompts(self, n: int | None = None, seed: int = 0) -> list[Prompt]:
        """The first `n` rows (all when None) in the order of the file. The whole file is checked.
        Raises TaskError."""
        seen: dict[str, int] = {}
        prompts, unread = [], set()
        for number, raw in enumerate(RowSource(path=self._file).rows("the prompts"), start=1):
            try:
                row = _PromptRow.model_validate(raw)
            except ValidationError as error:
                raise TaskError(f"{self.path}, row {number}: {faults(error)}") from error
            if row.id in seen:
                raise TaskError(
                    f"{self.path}, row {number}: id {row.id!r} is already used in row "
                    f"{seen[row.id]}"
                )
            seen[row.id] = number
            prompts.append(row.as_prompt(self._control_tokens, self._date))
            unread |= set(row.model_extra or ())
        if unread:
            _warn(str(self.path), tuple(sorted(unread)))
        return prompts[:n]

    def score(self, prompt: Prompt, texts: Sequence[str]) -> Score:
        """No score: the file holds no right answers."""
        return Score(None)


def faults(error: ValidationError) -> str:
    """Pydantic's complaints about one row, in one line."""
    complaints = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"])
        text = PLAIN.get(item["type"], item["msg"].removeprefix("Value error, "))
        complaints.append(f"{field}: {text}" if field else text)
    return " ".join("; ".join(complaints).split())


@cache
def _warn(path: str, unread: tuple[str, ...]) -> None:
    """Say once of a file which of its fields are not read."""
    log.warning(
        "%s: not read: %s; task=dataset with task.prompt, task.target and task.scorer.name "
        "scores answers (docs/options.md, Your own prompts)",
        path,
        ", ".join(unread),
    )
