"""A cell folder restricted to the prompts that a command requests.

More prompts extend a cell: its samples file may hold more than the first n that a command asks for, and what the
command prints, draws, traces or judges is about these alone. Of those that were ever timed count the first ones in the
order of timing, without a gap: a random sample of the n, whatever else was timed for other numbers of prompts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING

from results.metrics.summary import summarise
from results.store.cells import CellFolder, Store
from results.store.compared import Compared, compare
from results.store.errors import StoreError
from results.store.sample import FailedSample, Sample
from results.store.summary import DEFINITIONS
from results.store.timed import timing_order
from tasks.base import TaskError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.store.sample import Record
    from results.store.summary import Summary
    from results.store.timed import Timed

PROFILE = "profile"
"""The record of a cell's phases: seconds of each part of a cycle, its own, those of each prompt and the baseline's
(`bench.run.timed_pass.profiling.Profile`); and what a step of the baseline reads (`methods.engine.roofline.reads`)."""


def requested_cell(cell: Cell, store: Store) -> RequestedCell:
    """The cell's folder, whether or not it exists yet, restricted to the prompts that the cell asks for."""
    return RequestedCell(cell, store)


class RequestedCell(CellFolder):
    """Reads as if only the first `cell.n` prompts of the task (all when None) had ever been measured."""

    def __init__(self, cell: Cell, store: Store) -> None:
        folder = store.cell(cell.name)
        super().__init__(folder.path, folder._lines)
        self.cell, self._store = cell, store

    @cached_property
    def baseline(self) -> CellFolder:
        """The folder of the baseline; an autoregressive cell is its own."""
        return self if self.cell.is_autoregressive else self._store.cell(self.cell.baseline().name)

    def samples(self) -> list[Record]:
        """The records of the prompts asked for, sorted by id: the file holds them as they were finished. Raises
        StoreError."""
        records = super().samples()
        ids = self.selection() if records else None  # listing a task's prompts takes longer than looking for a file
        asked = None if ids is None else set(ids)
        return sorted((record for record in records if asked is None or record.id in asked),
                      key=lambda record: record.id)

    def timed(self) -> list[Timed]:
        """The timed prompts that count: of those asked for and answered by the cell and its twin, the first ones in the
        order of timing, up to one that was not timed. Raises StoreError."""
        rows = {row.id: row for row in super().timed()}
        if not rows:
            return []
        answered = {record.id for record in self.samples() if isinstance(record, Sample)}
        if self.baseline is not self:
            answered &= {sample.id for sample in self.baseline.good_samples()}
        return [rows[name] for name in takewhile(rows.__contains__, timing_order(answered))]

    def compared(self) -> list[Compared | FailedSample]:
        """The requested prompts beside their baseline, without those that either has not tried yet; what
        failed in either has failed. Raises StoreError."""
        return self._beside({row.id: row for row in self.timed()})

    def untimed(self) -> list[Compared | FailedSample]:
        """As `compared`, without what any clock said."""
        return self._beside({})

    def _beside(self, timed: Mapping[str, Timed]) -> list[Compared | FailedSample]:
        return compare(self.samples(), {record.id: record for record in self.baseline.samples()}, timed)

    def summary(self) -> Summary | None:
        """The metrics of the prompts asked for; None while one of them is missing. Raises StoreError.

        Where summary.json is about other prompts or of earlier definitions, they are computed from the samples; metrics
        that compare cells are then missing (`bench.run.related_cells`)."""
        stored = self.stored_summary()
        if stored is None:
            return None
        if not self.is_about(stored):
            records = self.compared()
            if len(records) < len(self.ids):
                return None
            stored = self.summarised(records)
        return stored if self.is_timed(stored) else None

    def is_complete(self) -> bool:
        """Whether the prompts asked for were answered and timed; no metric is computed. Raises StoreError."""
        stored = self.stored_summary()
        if stored is None or self.failure() or self.awaits_scores(stored):
            return False
        if self.is_about(stored):
            return self.is_timed(stored)
        records = self.compared()
        done = sum(isinstance(record, FailedSample) or record.timed is not None for record in records)
        return len(records) >= len(self.ids) and done >= min(self.cell.timed_prompts, len(records))

    def is_about(self, stored: Summary) -> bool:
        """Whether a stored summary is about the prompts asked for and the timed ones that count, by the present
        definitions. Raises StoreError."""
        return (not self.awaits_scores(stored) and stored.asked == self.cell.n and stored.definitions == DEFINITIONS
                and stored.metric == self.cell.load_task().metric and stored.timed == len(self.timed()))

    def awaits_scores(self, stored: Summary) -> bool:
        """Whether answers are without a score that this machine can give."""
        return stored.unscored > 0 and self.cell.load_task().unscorable() is None

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
                            prompt_phases=profile.get("prompts") or (), baseline_phases=profile.get("baseline"),
                            reads=profile.get("reads"))
        return summary.with_values(asked=self.cell.n, definitions=DEFINITIONS)

    def selection(self) -> list[str] | None:
        """Ids of the prompts asked for; None where these are all that the samples file holds. Raises StoreError."""
        stored = self.stored_summary()
        if stored is not None and stored.asked == self.cell.n and stored.n + stored.failed == len(super().samples()):
            return None
        return self.ids

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the prompts asked for, in the task's order. Raises StoreError."""
        return self._ids(self.cell.n)

    def _ids(self, n: int | None) -> list[str]:
        """Ids of the first n prompts of the task. Raises StoreError."""
        try:
            return [prompt.id for prompt in self.cell.load_task().prompts(n, self.cell.seed)]
        except TaskError as error:
            raise StoreError(f"{self.path}: cannot list the requested prompts of task={self.cell.task.name}: "
                             f"{error}") from error
