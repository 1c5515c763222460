"""Complete cells: decode what is missing and time it. All launchers end here."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.run.console import console
from bench.run.locks import Claim, claim, claim_rotations
from bench.run.quality_pass.processes import worker_count
from bench.run.quality_pass.schedule import QualityPass, Tracing, counted
from bench.run.requested_cell import RequestedCell, requested_cell
from bench.run.timed_pass import machine_lock as machine
from bench.run.timed_pass.rotate import needs_clock, rotations, time_rotation
from results.store.errors import StoreError
from results.store.sample import FailedSample
from results.store.traces import TraceFolder

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.engine import Engine
    from results.store.cells import Store

log = logging.getLogger(__name__)
PATIENCE_S = 0.5
"""Between two looks at a cell that another process decodes."""


@dataclass(frozen=True, slots=True)
class Passes:
    """How the two passes over cells are run.

    traced         names of the cells whose answers are all traced.
    along          names of cells, baselines included, of which only answers decoded in this run are traced.
    quality_batch  prompts decoded together in the quality pass.
    workers        processes of the quality pass; None: as many as suit the machine.
    shared         other workers run on this machine: the timed pass runs beside them, and its rows say so.
    """

    traced: frozenset[str]
    along: frozenset[str]
    quality_batch: int
    workers: int | None
    shared: bool = False


def complete_cells(cells: Sequence[Cell], passes: Passes, store: Store, engine: Engine) -> list[Cell]:
    """Complete the cells in two passes: all prompts without a clock, then the timed ones.

    A cell that fails does not stop the others: its folder says why. Returns the cells of rotations that another process
    works on, and those that it writes: they are left alone."""
    remaining = [cell for cell in cells if not is_current(requested_cell(cell, store), cell.name in passes.traced)]
    refused = Completion(remaining, passes, store, engine).run() if remaining else ()
    return [cell for cell in remaining if cell in refused]


def forget_times(cells: Sequence[Cell], store: Store) -> None:
    """Forget what the clock said of these cells, so that one measuring session times them all."""
    for name in {cell.name for cell in cells if cell.timed}:
        if (folder := store.cell(name)).path.exists():
            with folder.lock(wait=True):
                folder.forget_times()


def is_current(folder: RequestedCell, is_traced: bool) -> bool:
    """Whether the cell is complete, its traces included where they are asked for, and what is on disk says so; failed
    prompts are tried again."""
    try:
        if not folder.is_complete() or any(isinstance(record, FailedSample) for record in folder.compared()):
            return False
        if None in (folder.config(), folder.baseline.config()):  # removed: invisible to whoever lists the store
            return False
        return not is_traced or {sample.id for sample in folder.good_samples()} <= TraceFolder(folder).covered()
    except StoreError:  # the pass that reads the file records why
        return False


class Completion:
    """The two passes over the open cells of a command."""

    def __init__(self, cells: Sequence[Cell], passes: Passes, store: Store, engine: Engine) -> None:
        self._cells, self._passes, self._store, self._engine = cells, passes, store, engine

    def run(self) -> list[Cell]:
        """Complete the cells that no other process holds; the others are returned."""
        with ExitStack() as locks:
            mine, refused = claim_rotations(self._cells, self._store, locks)
            baselines = [baseline for baseline in self._baselines(mine) if self._lacks(baseline)]
            claims, written = claim([*baselines, *mine], self._store, locks)
            names, refused = {cell.name for cell in mine}, refused | written
            self._engine.prepare([one.cell for one in claims.values()])
            self._decode(claims, names)
            needed = {held.cell.baseline().name for held in claims.values()}
            for baseline in baselines:
                if baseline.name in needed & set(refused):
                    self._await(baseline)
            self._time([held for held in claims.values() if held.cell.name in names])
            for held in claims.values():
                self._check(held)
        return [cell for cell in self._cells if cell.name in refused]

    def _baselines(self, cells: Iterable[Cell]) -> Iterable[Cell]:
        """The baselines of the cells; only their samples are needed."""
        baselines = [cell.baseline().replace(timed=0) for cell in cells if not cell.is_autoregressive]
        return {(baseline.name, baseline.n): baseline for baseline in baselines}.values()

    def _lacks(self, cell: Cell) -> bool:
        """Whether prompts of the cell were not answered or scored yet, or its configuration was removed."""
        folder = requested_cell(cell, self._store)
        try:
            scored = cell.load_task().unscorable() is not None
            return folder.config() is None or not set(folder.ids) <= {
                sample.id for sample in folder.good_samples() if scored or not sample.unscored}
        except StoreError:  # the pass that reads the file records why
            return True

    def _decode(self, claims: Mapping[str, Claim], asked: Collection[str]) -> None:
        """Decode what is missing; `asked`: names of the cells that are wanted for themselves."""
        def tracing(cell: Cell) -> Tracing:
            if cell.name in asked and cell.name in self._passes.traced:
                return "all"
            return "decoded" if cell.name in self._passes.along and cell.engine.shows_positions else "none"

        quality = QualityPass(claims, asked, tracing, self._passes.quality_batch, self._store)
        quality.score()
        if not quality.jobs:
            return
        engines = [held.cell.engine for held in claims.values()]
        # one model has all devices, or the engine decodes its batches by itself
        spread = any(engine.parallel != "none" or engine.name != "lab" for engine in engines)
        workers = worker_count(self._passes.workers, {engine.device for engine in engines}, quality.jobs)
        with machine.decoding():
            quality.run(1 if spread else workers, self._engine)

    def _await(self, baseline: Cell) -> None:
        """Wait until another process has decoded it, or decode it when that process has ended."""
        said = False
        while self._lacks(baseline):
            with ExitStack() as locks:
                claims, refused = claim([baseline], self._store, locks)
                if claims:
                    self._decode(claims, ())
                    return
            if not said:
                said = True
                log.warning("waiting for the baseline: %s", refused[baseline.name])
            time.sleep(PATIENCE_S)

    def _time(self, claims: Iterable[Claim]) -> None:
        groups = rotations(held for held in claims if self._is_untimed(held))
        if not groups:
            return
        with machine.decoding() if self._passes.shared else machine.alone():
            stamp = machine.Stamp.now(self._passes.shared)
            for number, rotation in enumerate(groups, start=1):
                if len(groups) > 1:
                    name = title([held.cell for held in rotation])
                    console().print(f"timed pass, {number} of {len(groups)}: {name}", highlight=False)
                if started := [held for held in rotation if held.start()]:  # the clock's machine may be another one
                    time_rotation(started, self._store, self._engine, stamp)

    def _is_untimed(self, held: Claim) -> bool:
        try:
            return held.folder.failure() is None and needs_clock(held, requested_cell(held.cell, self._store).baseline)
        except Exception as error:  # an unreadable file of its own: only this cell cannot run
            held.fail(error)
            return False

    def _check(self, held: Claim) -> None:
        """Record why prompts are missing, for each number of them that was asked for."""
        for cell in held.cells:
            folder = requested_cell(cell, self._store)
            try:
                records = folder.compared()
                if len(records) < len(folder.ids):
                    if folder.failure() is None:
                        held.fail(f"baseline: {folder.baseline.failure() or 'was not finished'}")
                elif folder.config() is None:
                    held.folder.write_config(cell.record())
            except Exception as error:
                held.fail(error)


def title(cells: Sequence[Cell]) -> str:
    """A rotation in words: `tiny, mini_gsm, temperature 0, 3 points`."""
    first, points = cells[0], counted(len(cells), "point")
    return f"{first.pair.name}, {first.task.name}, temperature {first.decoding.temperature:g}, {points}"
