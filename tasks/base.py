"""What every task is made of: a `Prompt` to answer, a `Score` for the answers, the `Task` that
provides both."""

from __future__ import annotations

import datetime
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Split = Literal["train", "calibration", "test"]
ControlTokens = Literal["refuse", "text", "parse"]
"""What a chat message that holds the string of a control token is: refused, plain text, or read as
the token."""
JudgeStyle = Literal["mt_bench", "komt_bench", "alpaca_eval"]


MOST_NEW_TOKENS = 1 << 24
"""No model has more positions, and the numbers of an answer's tokens fit every integer on the
way."""


class TaskError(ValueError):
    """Bad task data or settings. The message is one line: what was given, what is allowed, how to
    fix it."""


class DataMissing(TaskError):
    """A file of rows that is not there."""


Reference = Mapping[str, Any]
"""Plain JSON data for a task's scorer."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One item to answer. Exactly one of `turns`, `text`, `input_ids` is set.

    id         unique within the task; it names the prompt's random stream.
    turns      the user's messages, answered one after the other through the chat template.
    text       a raw prompt, tokenised as is.
    input_ids  token ids of the target's tokenizer.
    system     an optional system message (with `turns`).
    prefix     (role, content) messages before the first turn: few-shot examples or a given history.
    history    given answers to the first turns; they replace the method's own in the context of
               later turns.
    group      the item's id where several prompts are samples of one item (pass@k).
    reference  plain JSON data for the task's scorer.
    control_tokens  what a control token in its messages is; in `text` it is the token unless this
                    says text.
    date       the day that a chat template prints; None: the one that `LanguageModel.encode` takes.
    """

    id: str
    turns: tuple[str, ...] = ()
    text: str | None = None
    input_ids: tuple[int, ...] | None = None
    system: str | None = None
    prefix: tuple[tuple[str, str], ...] = ()
    history: tuple[str, ...] = ()
    group: str | None = None
    reference: Reference = field(default_factory=dict)
    control_tokens: ControlTokens = "refuse"
    date: datetime.date | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """The score of the answers to one prompt.

    value    in [0, 1]; None where the task has no right answer.
    answer   the extracted answer, for people to read; None where none could be extracted.
    details  further named scores, such as that of a second extraction filter.
    """

    value: float | None
    answer: str | None = None
    details: Mapping[str, float] = field(default_factory=dict)


def _local_path(value: object) -> object:
    if value == "":
        raise ValueError("must name a file or a folder")
    path = Path(value).expanduser() if isinstance(value, str) else value
    if isinstance(path, Path) and path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError("no regular file; a pipe or device could wait or go on without end")
    return path


LocalFile = Annotated[Path, BeforeValidator(_local_path)]
"""An option that is a file or folder of this machine: its content decides the result, its place
does not."""


class StrictModel(BaseModel):
    """Read-only; keys that it does not know, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TaskOptions(StrictModel):
    """What every task's options include.

    max_new_tokens  limit of a turn where decoding.max_new_tokens is null.
    date            the day that a chat template prints which reads the clock.
    think_end       the mark that ends a reasoning, which is neither scored nor told in later turns;
                    None: those that the tokenizer or its template names; empty: none.
    """

    max_new_tokens: int = Field(ge=1, le=MOST_NEW_TOKENS)
    # later: unused, identity lacks it
    date: datetime.date | None = Field(None, exclude_if=lambda day: day is None)
    think_end: str | None = Field(None, exclude_if=lambda mark: mark is None)


class Task(ABC):
    """A benchmark.

    name        its name in tables and on the command line.
    version     raised whenever the same options give other prompts or scores.
    metric      name of the score.
    proportion  whether every score is 0 or 1 (Wilson interval).
    stop        decoding of a turn ends before the first of these strings.
    judged      the published judge prompts that grade its answers; None where no LLM judge does.
    path        the local file or folder its rows come from, if any.
    runs_programs  whether its programs may be trusted, where the project's own models wrote them.
    own_models  whether the answers are those of the models that the project ships, whose programs
                are trusted.
    """

    name: str
    version: int
    metric: str
    proportion: bool
    stop: tuple[str, ...] = ()
    judged: JudgeStyle | None = None
    path: Path | None = None
    runs_programs: bool = False
    own_models: bool = False

    @abstractmethod
    def prompts(self, n: int | None = None, seed: int = 0) -> list[Prompt]:
        """The first `n` prompts (all when None), always in the same order. Raises TaskError."""

    @abstractmethod
    def score(self, prompt: Prompt, texts: Sequence[str]) -> Score:
        """Score the answers to the prompt's turns, one text a turn. Raises TaskError."""

    def prompts_of(self, split: Split, n: int, seed: int = 0) -> list[Prompt]:
        """`n` prompts to train or calibrate on. A task without splits of its own gives `n` of its
        prompts, drawn uniformly, or all if there are no more. Raises TaskError."""
        prompts = self.prompts()
        return random.Random(f"{self.name}/{split}/{seed}").sample(prompts, min(n, len(prompts)))

    def unscorable(self) -> str | None:
        """Why answers cannot be scored on this machine, in one line; None where they can."""
        return None

    def caution(self) -> str | None:
        """What a run says once of how answers are scored on this machine."""
        fault = self.unscorable()
        return fault and (
            f"{self.name}: answers are stored without a score: {fault}; the same command gives the "
            "scores on a machine that can"
        )
