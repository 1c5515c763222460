"""The three things every task speaks in: a `Prompt` to answer, a `Score` for an answer, a `Task` that makes both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol


class TaskError(ValueError):
    """Bad task data or settings. The message is one line: what was given, what is allowed, how to fix it."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One item to answer.

    Exactly one of `turns`, `text`, `input_ids` is set:
    `turns` are the user's messages of a conversation, answered one after the other through the chat template
    (an optional `system` message first); `text` is a raw prompt, tokenised as it stands; `input_ids` are token ids.
    `prefix` are earlier (role, content) messages that precede the first turn (few-shot examples or a given history).
    `history` are given answers to the first turns, which stand in later turns' context in place of the method's own.
    `group` is the item's id where several prompts are samples of one item (pass@k).
    `reference` is whatever the task's scorer needs, plain JSON data.
    """

    id: str
    turns: tuple[str, ...] = ()
    text: str | None = None
    input_ids: tuple[int, ...] | None = None
    system: str | None = None
    prefix: tuple[tuple[str, str], ...] = ()
    history: tuple[str, ...] = ()
    group: str | None = None
    reference: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """`value` in [0, 1]; None where the task has no right answer (a user's own prompts).

    `answer` is what was extracted from the text, for a person to read; `details` are further named numbers
    (for example the other extraction filter)."""

    value: float | None
    answer: str | None = None
    details: Mapping[str, float] = field(default_factory=dict)


class Task(Protocol):
    """A benchmark. `metric` names the score; `proportion` says that each value is 0 or 1 (Wilson interval)."""

    name: str
    version: int
    metric: str
    proportion: bool
    stop: tuple[str, ...]
    """Decoding of a turn ends before the first of these strings."""

    def prompts(self, n: int | None, seed: int) -> list[Prompt]:
        """The first `n` prompts (all when None), always in the same order. Raises TaskError."""
        ...

    def score(self, prompt: Prompt, texts: Sequence[str]) -> Score:
        """Score the answers to the prompt's turns (one text a turn)."""
        ...


Split = Literal["train", "calibration", "test"]


@dataclass(frozen=True, slots=True)
class Example:
    """A generated item of an embedded benchmark: user `turns`, the gold `answers` to them, the scorer's `reference`."""

    id: str
    turns: tuple[str, ...]
    answers: tuple[str, ...]
    reference: Mapping[str, Any]
