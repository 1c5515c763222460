"""What all file formats share: an answer in common terms, a cell of answers, and the interface of a converter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from results.store.cells import CellFolder
from results.store.sample import STRICT

Prompts = Literal["all", "timed"]


class ExchangeError(ValueError):
    """A file that does not follow its format, or a cell that a format cannot hold. The message is one line: file, line,
    field and what is wrong."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One answer to one prompt, in terms that several formats have. None: the file does not say.

    id             the prompt's id
    category       the part of its benchmark that the prompt belongs to
    choice         which of several answers to the prompt, from 0
    texts          the answer of each turn
    tokens         new tokens of each turn, or one number for all turns
    steps          draft–verify cycles of each turn, or one number for all turns
    seconds        wall time of each turn, prefill included, or one number for all turns
    prefill_s      seconds of wall time until the first token, all turns
    committed      tokens committed in each cycle over all turns, the correction or bonus token included
    accepted       draft tokens accepted in each cycle over all turns
    proposed       draft tokens proposed in each cycle over all turns
    histogram      [i]: cycles with i accepted draft tokens
    drafted        draft tokens proposed, all turns
    draft_length   the most draft tokens of a cycle
    prompt_tokens  tokens of the prompt, all turns
    finish         why each turn ended: "eos", "length", "stop"
    scores         name of a score -> its value
    answer         what the task extracted from the text
    extra          further fields of its format; written back to a file of the same format
    """

    __pydantic_config__: ClassVar[Any] = STRICT
    id: str
    category: str | None = None
    choice: int = 0
    texts: list[str] | None = None
    tokens: list[int] | None = None
    steps: list[int] | None = None
    seconds: list[float] | None = None
    prefill_s: float | None = None
    committed: list[int] | None = None
    accepted: list[int] | None = None
    proposed: list[int] | None = None
    histogram: list[int] | None = None
    drafted: int | None = None
    draft_length: int | None = None
    prompt_tokens: int | None = None
    finish: list[str] | None = None
    scores: dict[str, float] = field(default_factory=dict)
    answer: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """A record of a file that holds no answer to measure, and why."""

    id: str
    reason: str


Read = Exchanged | Failed


@dataclass(frozen=True, slots=True)
class Source:
    """A cell to be written.

    name      its key in its store; names the files
    format    the format it was imported from; None for a cell that was measured here
    task      the name of its task or benchmark
    metric    the name of its task's score; None where it has none
    about     what ran: model, method, versions, as plain data
    answers   its answers; each call reads them again
    baseline  the baseline's answers to its timed prompts; each call reads them again
    folder    its folder in the store; None for an imported cell
    """

    name: str
    format: str | None
    task: str
    metric: str | None
    about: dict[str, Any]
    answers: Callable[[], Iterator[Exchanged]]
    baseline: Callable[[], Iterator[Exchanged]]
    folder: CellFolder | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written: its path, the number of answers in it, and the number left out."""

    path: Path
    answers: int
    left_out: int = 0


class Converter(ABC):
    """One file format. Each file of this folder defines one subclass, found by the file's name."""

    about: ClassVar[str]
    """The format in a few words."""
    prompts: ClassVar[Prompts] = "all"
    """Which answers of a measured cell a file holds by default: `timed` for programs that need the wall time of every
    answer."""
    divides: ClassVar[bool] = True
    """Whether each prompt has one category, so that a whole file can be one cell."""

    def task(self, category: str | None) -> str | None:
        """The task that a category belongs to."""
        return category

    def script(self, answers: Iterable[Exchanged], baseline: Iterable[Exchanged],
               count: Callable[[str], int]) -> dict[str, float]:
        """Name -> number that the format's own script computes for two files; empty without such a script. `count`:
        tokens of a text, including special tokens that the tokenizer adds."""
        return {}

    @abstractmethod
    def write(self, sources: Iterable[Source], folder: Path) -> Iterator[Written]:
        """Write cells into `folder`, one after another. Raises ExchangeError for what the format cannot hold,
        StoreError for a store that cannot be read or a file that cannot be written."""

    @abstractmethod
    def read(self, file: Path) -> Iterator[Read]:
        """The records of a file, one after another. Raises ExchangeError, naming file, line and field."""
