"""What the file formats share: an answer in common terms, a cell of answers, and files of one JSON object per line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from results.metrics.summary import Summary
from results.store.cells import CellFolder
from results.store.files import replacing
from results.store.json_text import json_text

Prompts = Literal["all", "timed"]


class ExchangeError(ValueError):
    """A file that does not follow its format, or a cell that a format cannot hold. The message is one line: file, line,
    field and what is wrong."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One answer to one prompt. None: the store or the file does not say.

    id         the prompt's id
    category   the part of its benchmark that the prompt belongs to
    choice     which of several answers to the prompt, from 0
    texts      the answer of each turn
    tokens     new tokens of each turn, or one number for all turns
    steps      draft–verify cycles of each turn, or one number for all turns
    seconds    wall time of each turn, prefill included, or one number for all turns
    committed  tokens committed in each cycle over all turns, the correction or bonus token included
    scores     name of a score -> its value
    answer     what the task extracted from the text
    """

    id: str
    category: str | None = None
    choice: int = 0
    texts: list[str] | None = None
    tokens: list[int] | None = None
    steps: list[int] | None = None
    seconds: list[float] | None = None
    committed: list[int] | None = None
    scores: dict[str, float] = field(default_factory=dict)
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A measured cell to be written.

    name      its key in its store; names the files
    task      the name of its task
    about     what ran: model, method, versions, as plain data
    answers   its answers; each call reads them again
    baseline  the baseline's answers to its timed prompts; each call reads them again
    folder    its folder in the store
    summary   its metrics; each call computes them
    """

    name: str
    task: str
    about: dict[str, Any]
    answers: Callable[[], Iterator[Exchanged]]
    baseline: Callable[[], Iterator[Exchanged]]
    folder: CellFolder
    summary: Callable[[], Summary]


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written: its path, the number of answers in it, and the number left out."""

    path: Path
    answers: int
    left_out: int = 0


def write_objects(path: Path, objects: Iterable[Mapping[str, Any] | None]) -> Written:
    """Write one object per line; None stands for an answer that the format cannot hold. Raises StoreError."""
    written = left_out = 0
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for one in objects:
            if one is None:
                left_out += 1
            else:
                file.write(json_text(one) + "\n")
                written += 1
    return Written(path, written, left_out)
