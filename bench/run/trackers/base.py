"""What every tracker can do: open a run by its id, follow it while its cell is decoded, log its results once."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class About:
    """What a run is about.

    id      the same in every command, so that a later one resumes the run: the cell's name in the store, or
            report-NAME
    kind    what it holds
    group   the report that asked for it; None for a command
    config  plain data
    folder  where a client may keep files; None: where it likes
    """

    id: str
    kind: Literal["cell", "report"]
    group: str | None
    config: Mapping[str, Any]
    folder: Path | None = None


@dataclass(frozen=True)
class Results:
    """What a run shows in the end.

    summary  metric -> value
    answers  a row per prompt
    page     HTML of answers with coloured tokens
    tables   name -> CSV file
    images   name -> PNG file
    """

    summary: Mapping[str, Any] = field(default_factory=dict)
    answers: Sequence[Mapping[str, Any]] = ()
    page: str | None = None
    tables: Mapping[str, Path] = field(default_factory=dict)
    images: Mapping[str, Path] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Equal for equal results: a command that finds it in the run logs nothing again."""
        files = {name: hashlib.sha256(file.read_bytes()).hexdigest()
                 for name, file in {**self.tables, **self.images}.items()}
        text = json.dumps([self.summary, self.answers, self.page, files], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def frames(self) -> dict[str, pd.DataFrame]:
        """All tables: the answers, and the files as text."""
        import pandas as pd

        answers = {"answers": pd.DataFrame(self.answers)} if self.answers else {}
        return answers | {name: pd.read_csv(file, dtype=str).fillna("") for name, file in self.tables.items()}


class OpenRun(ABC):
    """A run that is being written. Every method raises what the tracker's client raises."""

    @abstractmethod
    def live(self, values: Mapping[str, float]) -> None:
        """How far the cell is: `prompts`, the axis of the others, `tau`, and `tokens_per_s` where it is known."""

    @abstractmethod
    def holds(self, digest: str) -> bool:
        """Whether results of this digest are what was logged last."""

    @abstractmethod
    def log(self, results: Results) -> None:
        """Log the results."""

    @abstractmethod
    def finish(self) -> None:
        """Send what is left and end the run."""
