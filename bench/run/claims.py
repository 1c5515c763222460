"""The cells that this process may write: locked, with what each lacks."""

from __future__ import annotations

import logging
import math
import resource
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from bench.config.code import SCORER, code_of
from bench.run.requested_cell import RequestedCell, folder_of
from results.store.errors import Locked, StoreError, format_exception
from results.store.state import Todo

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.schema import Pair
    from bench.config.settings import Settings
    from results.store.cells import CellFolder, Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Passes:
    """How the two passes over cells are run.

    traced         names of the cells whose answers are all traced.
    along          names of cells, baselines included, of which only answers decoded in this run are
                   traced.
    quality_batch  prompts decoded together in the quality pass.
    workers        processes of the quality pass; None: as many as suit the machine.
    sessions       this process times the next part of the prompts, of so many.
    shared         other workers run on this machine: the timed pass runs beside them, and its rows
                   say so.
    """

    traced: frozenset[str]
    along: frozenset[str]
    quality_batch: int
    workers: int | None
    sessions: int = 1
    shared: bool = False

    @classmethod
    def of(
        cls,
        settings: Settings,
        cells: Iterable[Cell],
        traced: Collection[str],
        shown: Collection[str],
        sessions: int,
    ) -> Passes:
        """Those of a command. Cells named in `traced` are traced even without trace=true. Of cells
        named in `shown`, the answers that are decoded anyway are traced, unless trace=false."""
        names = [cell.name for cell in cells if settings.trace is True or cell.name in traced]
        along = frozenset(shown) if settings.trace else frozenset[str]()
        return cls(frozenset(names), along, settings.quality_batch, settings.workers, sessions)


def prompts_asked(cell: Cell) -> float:
    """How many prompts the cell asks for; infinity for all."""
    return math.inf if cell.n is None else cell.n


@dataclass(slots=True)
class Claim:
    """A cell that this process may write.

    folder     locked.
    baseline   the folder of its baseline.
    is_wanted  for itself, not only as the baseline of other cells.
    requested  the cell as the command asks for it, once for each number of prompts; at least one.
    todo       what it lacked at the last look.
    started    its configuration and environment are on disk.
    """

    folder: CellFolder
    baseline: CellFolder
    is_wanted: bool
    requested: list[RequestedCell] = field(default_factory=list)
    todo: Todo = field(default_factory=Todo)
    started: bool = False

    @property
    def cells(self) -> list[Cell]:
        return [each.cell for each in self.requested]

    @property
    def cell(self) -> Cell:
        """The cell that asks for most prompts."""
        return max(self.cells, key=prompts_asked)

    @property
    def timed_prompts(self) -> int:
        """The largest number of timed prompts asked for."""
        return max(cell.timed_prompts for cell in self.cells)

    def look(self, passes: Passes) -> None:
        """Read what the cell lacks, for all numbers of prompts together."""
        is_traced = self.is_wanted and self.cell.name in passes.traced
        todos = [
            each.todo(is_traced=is_traced, sessions=passes.sessions, for_itself=self.is_wanted)
            for each in self.requested
        ]
        self.todo = reduce(Todo.joined, todos)

    def start(self) -> bool:
        """Write what is known before anything is decoded, once, what this run asks for too. False,
        with the reason in the folder, where that fails."""
        if not self.started:
            try:
                self.write_config()
                prompts = len(self.cell.prompts())
                run = {"prompts": prompts, "timed": min(self.timed_prompts, prompts)}
                self.folder.write_environment({**self.cell.environment(sys.argv), "run": run})
            # a model's file that is missing, say: only this cell cannot run
            except Exception as error:
                self.fail(error)
                return False
        self.started = True
        return True

    def write_config(self) -> None:
        """Write cell.yaml; answers that are there keep the record of their code. Raises
        StoreError where the settings were edited."""
        before = self.folder.config() or {}
        config = {**self.cell.record(), "baseline": self.baseline.key}
        if self.folder.samples():
            del config["code"]
            if "code" in before:
                config["code"] = before["code"]
        self.folder.write_config(config)

    def forget_scores(self) -> None:
        """Forget the scores that other code of the scorer made; the pass makes them again."""
        log.warning(
            "task=%s: stored scores are of other code of its scorer: the answers stay, and are "
            "scored again",
            self.cell.task.name,
        )
        try:
            self.folder.forget_scores()
            config = self.folder.config() or {}
            scorer = {SCORER: code_of(self.cell)[SCORER]}
            self.folder.write_config(config | {"code": config["code"] | scorer})
        except StoreError as error:
            self.fail(error)

    def fail(self, error: Exception | str) -> None:
        """Record why the cell cannot be completed."""
        self.folder.write_failure(error if isinstance(error, str) else format_exception(error))
        log.debug("%s failed", self.cell.name, exc_info=True)

    def record_missing(self) -> None:
        """Record why prompts are missing."""
        try:
            if self.todo.fault is not None:
                self.fail(StoreError(self.todo.fault))
            elif self.todo.untried and self.folder.failure() is None:
                reason = self.baseline.failure() or "was not finished"
                self.fail(f"baseline: {reason}")
            elif self.todo.record:
                self.write_config()
        except Exception as error:
            self.fail(error)


@dataclass(frozen=True, slots=True)
class Claims:
    """What this process does of the open cells of a command.

    by_name    the locked cells; baselines that lack something included.
    refused    name -> why another cell, or a baseline, is left alone.
    baselines  those of the locked cells that lack something, whoever writes them; only their
               samples are needed.
    """

    by_name: Mapping[str, Claim]
    refused: Mapping[str, str]
    baselines: Sequence[Cell]

    @property
    def wanted(self) -> list[Claim]:
        """The cells that are wanted for themselves."""
        return [claim for claim in self.by_name.values() if claim.is_wanted]


def claimed(cells: Sequence[Cell], passes: Passes, store: Store, locks: ExitStack) -> Claims:
    """Lock the groups and baselines that no other process holds, and read what they lack. Raises
    StoreError."""
    claims: dict[str, Claim] = {}
    refused = lock_groups(by_group(cells), claims, store, locks, is_wanted=True)
    baselines: dict[tuple[str, int | None], Cell] = {}
    for claim in claims.values():
        claim.look(passes)
        if claim.cell.is_autoregressive or not (claim.todo.baseline or claim.todo.fault):
            continue
        for cell in claim.cells:
            baseline = cell.baseline().replace(timed=0)
            baselines[baseline.name, baseline.n] = baseline
    groups = [[baseline] for baseline in baselines.values()]
    refused |= lock_groups(groups, claims, store, locks, is_wanted=False)
    for name in {baseline.name for baseline in baselines.values()} & claims.keys():
        claims[name].look(passes)
    return Claims(claims, refused, list(baselines.values()))


def lock_groups(
    groups: Iterable[Sequence[Cell]],
    claims: dict[str, Claim],
    store: Store,
    locks: ExitStack,
    *,
    is_wanted: bool,
) -> dict[str, str]:
    """Lock the cells of each group, all or none of them, and add them to `claims`, by name. Returns
    why the others are left alone, by name. Raises StoreError."""
    refused: dict[str, str] = {}
    _allow_open_files()
    for group in groups:
        new = sorted((cell for cell in group if cell.name not in claims), key=prompts_asked)
        folders = {cell.name: folder_of(cell, store) for cell in new}  # for the largest n
        baselines = {cell.name: folder_of(cell.baseline(), store) for cell in new}
        with ExitStack() as group_locks:
            try:
                # every process takes them in this order
                for _, folder in sorted(folders.items()):
                    group_locks.enter_context(folder.lock())
            except Locked as error:
                refused |= dict.fromkeys((cell.name for cell in group), str(error))
                continue
            locks.enter_context(group_locks.pop_all())
        for name, folder in folders.items():
            folder.clear_failure()
            claims[name] = Claim(folder, baselines[name], is_wanted)
        for cell in group:
            claim = claims[cell.name]
            claim.requested.append(RequestedCell(cell, store, claim.folder))
    return refused


def _allow_open_files() -> None:
    """Every lock is an open file; the usual soft limit of 1024 is below what report=all needs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def by_group(cells: Iterable[Cell]) -> list[list[Cell]]:
    """The groups that can be timed beside one baseline, those of one pair together, so that its
    models are loaded once; else in the order of their first cell."""
    groups: dict[str, list[Cell]] = {}
    pairs: dict[Pair, int] = {}
    for cell in cells:
        groups.setdefault(cell.group_key, []).append(cell)
        pairs.setdefault(cell.pair, len(pairs))
    return sorted(groups.values(), key=lambda group: pairs[group[0].pair])


def wait_for(cells: Iterable[Cell], store: Store) -> None:
    """Wait until no other process works on these cells."""
    for cell in cells:
        with folder_of(cell, store).lock(wait=True):
            pass


def forget_times(cells: Iterable[Cell], store: Store) -> None:
    """Forget what the clock said of these cells, so that one measuring session times them all."""
    timed = [folder_of(cell, store) for cell in cells if cell.timed]
    for folder in {folder.key: folder for folder in timed}.values():
        if folder.path.exists():
            with folder.lock(wait=True):
                folder.forget_times()
