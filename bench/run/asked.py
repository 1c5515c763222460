"""A cell's folder as a command sees it: the prompts that the command asks for, of all that were ever measured.

More prompts extend a cell: its samples file may hold more than the first n that a command asks for, and what the
command prints, draws, traces or judges is about these alone. Of them, all that were ever timed count."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from results.metrics.summary import summarise
from results.store.cells import CellFolder, Store
from results.store.compared import Compared, compare
from results.store.errors import StoreError
from tasks.base import TaskError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.store.sample import FailedSample, Record
    from results.store.summary import Summary
    from results.store.timed import Timed

PROFILE = "profile"
"""The record of a cell's phases: median seconds of each part of a cycle, its own and the baseline's."""


def asked_folder(cell: Cell, store: Store) -> AskedFolder:
    """The cell's folder, whether or not it exists yet, restricted to the prompts that the cell asks for."""
    return AskedFolder(cell, store)


class AskedFolder(CellFolder):
    """Reads as if only the first `cell.n` prompts of the task (all when None) had ever been measured."""

    def __init__(self, cell: Cell, store: Store) -> None:
        folder = store.cell(cell.name)
        super().__init__(folder.path, folder._lines)
        self.cell, self._store = cell, store

    @cached_property
    def baseline(self) -> CellFolder:
        """The folder of the autoregressive twin; an autoregressive cell is its own."""
        return self if self.cell.is_autoregressive else self._store.cell(self.cell.baseline().name)

    def samples(self) -> list[Record]:
        """The records of the prompts asked for, sorted by id: the file holds them as they were finished. Raises
        StoreError."""
        ids = self.selection()
        asked = None if ids is None else set(ids)
        records = [record for record in super().samples() if asked is None or record.id in asked]
        return sorted(records, key=lambda record: record.id)

    def timed(self) -> list[Timed]:
        """The timed prompts among those asked for. Raises StoreError."""
        ids = self.selection()
        asked = None if ids is None else set(ids)
        return [row for row in super().timed() if asked is None or row.id in asked]

    def compared(self) -> list[Compared | FailedSample]:
        """The prompts asked for beside their baseline, without those that the cell or its twin has not yet tried; what
        failed in either has failed. Raises StoreError."""
        baselines = {record.id: record for record in self.baseline.samples()}
        return compare(self.samples(), baselines, {row.id: row for row in self.timed()})

    def summary(self) -> Summary | None:
        """The metrics of the prompts asked for; None while one of them is missing. Raises StoreError.

        Where summary.json is about another number of prompts, they are computed from the samples; metrics that compare
        cells are then missing (`bench.run.related_cells`)."""
        stored = self.stored_summary()
        if stored is None:
            return None
        if stored.asked != self.cell.n:
            records = self.compared()
            if len(records) < len(self.ids):
                return None
            stored = self.summarised(records)
        return stored if self.is_timed(stored) else None

    def stored_summary(self) -> Summary | None:
        """summary.json, whichever prompts it is about. Raises StoreError."""
        return super().summary()

    def is_timed(self, summary: Summary) -> bool:
        """Whether the summary is about as many timed prompts as the cell asks for; failed prompts cannot be timed."""
        return summary.timed + summary.failed >= min(self.cell.timed_prompts, summary.n + summary.failed)

    def summarised(self, records: list[Compared | FailedSample]) -> Summary:
        """The summary of these records, with the phases of the profile."""
        task, profile = self.cell.load_task(), self.record(PROFILE) or {}
        summary = summarise(records, metric=task.metric, proportion=task.proportion, phases=profile.get("own"),
                            baseline_phases=profile.get("baseline"))
        return summary.with_values(asked=self.cell.n)

    def selection(self) -> list[str] | None:
        """Ids of the prompts asked for; None where these are all that the samples file holds. Raises StoreError."""
        stored = self.stored_summary()
        if stored is not None and stored.asked == self.cell.n and stored.n + stored.failed == len(super().samples()):
            return None
        return self.ids

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the prompts asked for, in the task's order. Raises StoreError."""
        try:
            return [prompt.id for prompt in self.cell.load_task().prompts(self.cell.n, self.cell.seed)]
        except TaskError as error:
            raise StoreError(f"{self.path}: which prompts are asked for is not known: {error}") from error
