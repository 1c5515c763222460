"""A cell's folder as a command sees it: the prompts that the command asks for, of all that were ever measured.

More prompts extend a cell: its samples file may hold more than the first n that a command asks for, and what the
command prints, draws, traces or judges is about these alone."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from results.metrics.summary import summarise
from results.store.cells import CellFolder, Store
from results.store.errors import StoreError
from tasks.base import TaskError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.store.sample import Record
    from results.store.summary import Summary

PROFILE = "profile"
"""The record of a cell's phases: median seconds of each part of a cycle, its own and the baseline's."""


def asked_folder(cell: Cell, store: Store) -> AskedFolder:
    """The cell's folder, whether or not it exists yet, restricted to the prompts that the cell asks for."""
    return AskedFolder(cell, store.cell(cell.name))


class AskedFolder(CellFolder):
    """Reads as if only the first `cell.n` prompts of the task (all when None) had ever been measured."""

    def __init__(self, cell: Cell, folder: CellFolder) -> None:
        super().__init__(folder.path, folder._samples)
        self.cell = cell

    def samples(self) -> list[Record]:
        """The records of the prompts asked for, in the task's order. Raises StoreError."""
        if (ids := self.selection()) is None:
            return super().samples()
        records = {record.id: record for record in super().samples()}
        return [records[prompt] for prompt in ids if prompt in records]

    def summary(self) -> Summary | None:
        """The metrics of the prompts asked for; None while one of them is missing. Raises StoreError.

        Where summary.json is about another number of prompts, they are computed from the samples; metrics that compare
        cells are then missing (`bench.run.related_cells`)."""
        stored = self.stored_summary()
        if stored is None or stored.asked == self.cell.n:
            return stored
        records = self.samples()
        return self.summarised(records) if len(records) == len(self._ids) else None

    def stored_summary(self) -> Summary | None:
        """summary.json, whichever prompts it is about. Raises StoreError."""
        return super().summary()

    def summarised(self, records: list[Record]) -> Summary:
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
        return self._ids

    @cached_property
    def _ids(self) -> list[str]:
        try:
            return [prompt.id for prompt in self.cell.load_task().prompts(self.cell.n, self.cell.seed)]
        except TaskError as error:
            raise StoreError(f"{self.path}: which prompts are asked for is not known: {error}") from error
