"""What the formats share: a measured cell as a source of answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.store.cells import CellFolder
from results.store.sample import Sample, Timed

Written = tuple[Path, int]
"""A file that was written, and the number of answers, cells or positions in it."""


class ExchangeError(ValueError):
    """Nothing to write; one line."""


@dataclass(frozen=True, slots=True)
class Source:
    """A measured cell to be written.

    baseline    the cell that it is compared with
    config      what cell.yaml holds
    metric      the name of its score
    proportion  whether the score is 0 or 1
    timed_only  leave out prompts that were not timed, where any was
    """

    folder: CellFolder
    baseline: CellFolder
    config: Mapping[str, Any]
    metric: str
    proportion: bool
    timed_only: bool

    def answers(self) -> Iterator[tuple[Sample, Timed | None]]:
        """The answers, with their times where they were timed. Raises StoreError."""
        timed = {row.id: row for row in self.folder.timed()}
        for sample in self.folder.good_samples():
            if not (self.timed_only and timed) or sample.id in timed:
                yield sample, timed.get(sample.id)
