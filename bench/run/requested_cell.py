"""A cell folder restricted to the prompts that a command requests.

More prompts extend a cell: its samples file may hold more than the first n that a command asks for,
and what the command prints, draws, traces or judges is about these alone. Of those that were ever
timed count the first ones in the order of timing, without a gap: a random sample of the n, whatever
else was timed for other numbers of prompts."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from bench.config.code import SCORER, code_of, same_as, suffix
from results.metrics.summary import profiled, summarise
from results.store.cells import CellFolder, Store
from results.store.errors import StoreError
from results.store.sample import Compared, FailedSample, JudgeSummary, compare, timing_order
from results.store.state import Todo, Wanted, lacking, state_of
from tasks.base import TaskError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.metrics.summary import Summary
    from results.store.sample import Record, Timed

log = logging.getLogger(__name__)
JUDGED = "judge"
"""The record of an LLM judge's scores, and of how many prompts were asked for."""
_IDS: WeakKeyDictionary[Store, dict[str, list[str]]] = WeakKeyDictionary()
"""Task, number of prompts and seed -> their ids, read once by a command."""


def folder_of(cell: Cell, store: Store) -> CellFolder:
    """Where the answers of the cell's code are: the folder of its name, or one beside it where that
    holds answers of code that is not known to give the same tokens. Answers of code that nobody
    recorded are taken as they are, while they are all that is asked for. A folder that cannot be
    read is given as it is."""
    # to read all code takes a second, which a cell that was never started should not cost
    code = code_of(cell) if (store.root / cell.name).exists() else {}
    same = {part: same_as(digest) for part, digest in code.items()}
    folder, beside = store.cell(cell.name), store.cell(f"{cell.name}-{suffix(code)}")
    if not code:
        return folder
    try:
        recorded = (folder.config() or {}).get("code")
        if recorded is None:
            answered = folder.by_id().keys()
            if not answered:
                return folder
            if not beside.path.exists() and answered >= set(ids_of(cell, store)):
                log.warning(
                    "%s: nobody recorded the code that gave these answers, which may not be that "
                    "of this checkout; further prompts of such a cell are decoded in a folder "
                    "beside it",
                    store.root,
                )
                return folder
    except StoreError:
        return folder
    parts = changed(recorded or {}, same)
    if parts and not beside.path.exists():
        log.warning(
            "%s: answers stored there are of other code of %s: they stay, and are decoded again in "
            "folders beside them",
            store.root,
            " and ".join(_described(part, cell) for part in parts),
        )
    return beside if parts else folder


def changed(recorded: Mapping[str, str], same: Mapping[str, Collection[str]]) -> list[str]:
    """The parts whose recorded code is not known to give the `same` tokens, sorted."""
    parts = sorted((recorded.keys() | same.keys()) - {SCORER})
    return [part for part in parts if recorded.get(part) not in same.get(part, ())]


def _described(part: str, cell: Cell) -> str:
    chosen = getattr(cell, part, None)
    return "the decode loop" if chosen is None else f"{part}={chosen.name}"


def ids_of(cell: Cell, store: Store) -> list[str]:
    """Ids of the prompts asked for, in the task's order. Raises StoreError."""
    ids = _IDS.setdefault(store, {})
    key = f"{cell.task.model_dump_json()} {cell.n} {cell.seed}"
    if key not in ids:
        try:
            ids[key] = [prompt.id for prompt in cell.prompts()]
        except TaskError as error:
            raise StoreError(
                f"{store.root}/{cell.name}: cannot list the requested prompts of "
                f"task={cell.task.name}: {error}"
            ) from error
    return ids[key]


class RequestedCell(CellFolder):
    """Reads as if only the first `cell.n` prompts of the task (all when None) had ever been
    measured. `whole`: its folder, where that was found already."""

    def __init__(self, cell: Cell, store: Store, whole: CellFolder | None = None) -> None:
        self.whole = folder_of(cell, store) if whole is None else whole
        super().__init__(self.whole.path, store.lines)
        self.cell, self._store = cell, store

    @cached_property
    def baseline(self) -> CellFolder:
        """The folder of the baseline; an autoregressive cell is its own."""
        return self if self.cell.is_autoregressive else folder_of(self.cell.baseline(), self._store)

    def samples(self) -> list[Record]:
        """The records of the prompts asked for, sorted by id: the file holds them as they were
        finished. Raises StoreError."""
        stored = super().samples()
        asked = set(self.ids) if stored else ()
        return sorted((row for row in stored if row.id in asked), key=lambda row: row.id)

    def timed(self) -> list[Timed]:
        """The timed prompts that count: of those asked for and answered by the cell and its twin,
        the first ones in the order of timing, up to one that was not timed. Raises StoreError."""
        rows = {row.id: row for row in super().timed()}
        if not rows:
            return []
        answered = self.by_id().keys() & self.baseline.by_id().keys()
        return [rows[name] for name in takewhile(rows.__contains__, timing_order(answered))]

    def compared(self) -> list[Compared | FailedSample]:
        """The requested prompts beside their baseline, without those that either has not tried yet;
        what failed in either has failed. Raises StoreError."""
        return self._beside({row.id: row for row in self.timed()})

    def untimed(self) -> list[Compared | FailedSample]:
        """As `compared`, without what any clock said."""
        return self._beside({})

    def _beside(self, timed: Mapping[str, Timed]) -> list[Compared | FailedSample]:
        baseline = {record.id: record for record in self.baseline.samples()}
        return compare(self.samples(), baseline, timed)

    def todo(
        self,
        *,
        is_traced: bool = False,
        sessions: int = 1,
        for_itself: bool = True,
        is_listed: bool = True,
    ) -> Todo:
        """What the cell lacks; the options are those of `Wanted`. Without `is_listed` the prompts
        of a cell that has no answer are not listed, which may take a download. A file that cannot
        be read is its fault, not raised: the pass that reads it records that."""
        baseline = None if self.cell.is_autoregressive else self.baseline
        can_score = self.cell.load_task().unscorable() is None
        try:
            if not is_listed and not self.whole.samples():
                return Todo(whole=True, failure=self.failure())
            wanted = Wanted(
                prompts=tuple(self.ids),
                timed=self.cell.timed_prompts,
                batch=self.cell.batch,
                sessions=sessions,
                is_traced=is_traced,
                can_score=can_score,
                scorers=same_as(code_of(self.cell)[SCORER]) if can_score else frozenset(),
                for_itself=for_itself,
            )
            return lacking(wanted, state_of(wanted, self.whole, baseline))
        except StoreError as error:
            return Todo(fault=str(error))

    def measured(self) -> list[Compared | FailedSample] | None:
        """The prompts asked for beside their baseline; None while one of them was not tried or is
        to be timed. Raises StoreError."""
        todo = self.todo(is_listed=False)
        if todo.fault is not None:
            raise StoreError(todo.fault)
        return self.compared() if todo.is_measured else None

    def summary(self) -> Summary:
        """The metrics of the prompts asked for, with the phases of the profile and the scores of a
        judge. Those that compare cells are missing (`bench.run.related_cells`). Raises
        StoreError."""
        task, judge = self.cell.load_task(), self.record(JUDGED) or {}
        summary = summarise(
            self.compared(), metric=task.metric, proportion=task.proportion, **profiled(self)
        )
        if judge and judge.pop("asked") == self.cell.n:
            summary = summary.with_values(judge=JudgeSummary.model_validate(judge))
        return summary.with_values(asked=self.cell.n)

    @property
    def ids(self) -> list[str]:
        """Ids of the prompts asked for, in the task's order. Raises StoreError."""
        return ids_of(self.cell, self._store)
