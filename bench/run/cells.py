"""Complete cells: decode what is missing, time it, log it. Commands, sweeps and reports all end here."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from bench.run import machine
from bench.run.asked import AskedFolder, asked_folder
from bench.run.claims import Claim, claim
from bench.run.console import console
from bench.run.quality import QualityPass, Tracing, counted
from bench.run.rotation import needs_clock, rotations, time_rotation
from bench.run.workers import worker_count
from results.store.errors import StoreError
from results.store.traces import TraceFolder

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Settings
    from bench.run.model_pool import ModelPool
    from results.store.cells import Store

log = logging.getLogger(__name__)
PATIENCE_S = 0.5
"""Between two looks at a cell that another process decodes."""


def run_cells(cells: Sequence[Cell], settings: Settings, store: Store, pool: ModelPool,
              traced: Collection[str] = (), shown: Collection[str] = ()) -> None:
    """Complete the cells in two passes: all prompts without a clock, then the timed ones alone on the machine. Cells
    named in `traced` are traced even without trace=true; of those named in `shown`, unless trace=false, the answers
    that are decoded anyway.

    A cell that fails does not stop the others: its folder says why. A cell that another process is writing is left
    until the others are complete; where that process then ends before it, it is completed here."""
    def is_traced(cell: Cell) -> bool:
        return settings.trace is True or cell.name in traced

    along = frozenset(shown) if settings.trace else frozenset()

    if settings.fresh:
        forget_times(cells, store)
    asked = list({(cell.name, cell.n, cell.half_width, cell.timed): cell for cell in cells}.values())
    remaining = asked
    while remaining := [cell for cell in remaining if not is_current(asked_folder(cell, store), is_traced(cell))]:
        fixed = [_at_look(cell, store) for cell in remaining]
        refused = Completion(fixed, settings, store, pool, is_traced, along).run()
        for cell in refused:
            with asked_folder(cell, store).lock(wait=True):  # until the other process ends
                pass
        remaining = [cell for cell, before in zip(remaining, fixed, strict=True)
                     if before in refused or _at_look(cell, store).n != before.n]
    for cell in asked:
        folder = asked_folder(cell, store)
        if (summary := folder.summary()) is not None:
            settings.tracker.options.log_cell(cell.name, folder.config() or {}, folder.compared(), summary)


def forget_times(cells: Sequence[Cell], store: Store) -> None:
    """Forget what the clock said of these cells, so that one measuring session times them all."""
    for name in {cell.name for cell in cells if cell.timed}:
        if (folder := store.cell(name)).path.exists():
            with folder.lock(wait=True):
                folder.forget_times()


def _at_look(cell: Cell, store: Store) -> Cell:
    """The cell with the number of prompts of its next look, where it has n=auto."""
    try:
        return asked_folder(cell, store).cell
    except StoreError:  # the pass that reads the file records why
        return cell.twin(half_width=None)


def is_current(folder: AskedFolder, is_traced: bool) -> bool:
    """Whether the cell is complete, its traces included where they are asked for, and what is on disk says so; failed
    prompts are tried again."""
    try:
        summary, stored = folder.summary(), folder.stored_summary()
        if summary is None or summary.failed or stored is None or stored.asked != folder.cell.n or folder.failure():
            return False
        if None in (folder.config(), folder.baseline.config()):  # removed: invisible to whoever lists the store
            return False
        if not {record.id for record in folder.samples()} <= {record.id for record in folder.baseline.samples()}:
            return False
        return not is_traced or {sample.id for sample in folder.good_samples()} <= TraceFolder(folder).covered()
    except StoreError:  # the pass that reads the file records why
        return False


class Completion:
    """The two passes over the open cells of a command."""

    def __init__(self, cells: Sequence[Cell], settings: Settings, store: Store, pool: ModelPool,
                 is_traced: Callable[[Cell], bool], along: Collection[str]) -> None:
        """`along`: names of the cells, twins among them, that are traced as far as they are decoded anyway."""
        self._cells, self._settings, self._store, self._pool = cells, settings, store, pool
        self._is_traced, self._along = is_traced, along

    def run(self) -> list[Cell]:
        """Complete the cells that no other process is writing; the others are returned."""
        with ExitStack() as locks:
            twins = [twin for twin in self._twins() if self._lacks(twin)]
            claims, refused = claim([*twins, *self._cells], self._store, locks)
            names = {cell.name for cell in self._cells}
            self._decode(claims, names)
            needed = {one.cell.baseline().name for one in claims.values()}
            for twin in twins:
                if twin.name in needed & set(refused):
                    self._await(twin)
            self._time([one for one in claims.values() if one.cell.name in names])
            for one in claims.values():
                self._summarise(one)
        return [cell for cell in self._cells if cell.name in refused]

    def _twins(self) -> Iterable[Cell]:
        """The autoregressive twins of the cells; only their samples are needed."""
        twins = [cell.baseline().twin(timed=0) for cell in self._cells if not cell.is_autoregressive]
        return {(twin.name, twin.n): twin for twin in twins}.values()

    def _lacks(self, cell: Cell) -> bool:
        """Whether prompts of the cell were not answered yet, or its configuration was removed."""
        folder = asked_folder(cell, self._store)
        try:
            return folder.config() is None or not set(folder.ids) <= {sample.id for sample in folder.good_samples()}
        except StoreError:  # the pass that reads the file records why
            return True

    def _decode(self, claims: Mapping[str, Claim], asked: Collection[str]) -> None:
        """Decode what is missing; `asked`: names of the cells that are wanted for themselves."""
        def tracing(cell: Cell) -> Tracing:
            if cell.name in asked and self._is_traced(cell):
                return "all"
            return "decoded" if cell.name in self._along else "none"

        quality = QualityPass(claims, asked, tracing, self._settings.quality_batch)
        if not quality.jobs:
            return
        devices = {one.cell.engine.device for one in claims.values()}
        with machine.decoding():
            quality.run(worker_count(self._settings.workers, devices, quality.jobs), self._pool)

    def _await(self, twin: Cell) -> None:
        """Wait until another process has decoded the twin, or decode it when that process has ended."""
        said = False
        while self._lacks(twin):
            with ExitStack() as locks:
                claims, refused = claim([twin], self._store, locks)
                if claims:
                    self._decode(claims, ())
                    return
            if not said:
                said = True
                log.warning("waiting for the baseline: %s", refused[twin.name])
            time.sleep(PATIENCE_S)

    def _time(self, claims: Iterable[Claim]) -> None:
        groups = rotations(one for one in claims if self._is_untimed(one))
        if not groups:
            return
        with machine.alone():
            stamp = machine.Stamp.now()
            for number, rotation in enumerate(groups, start=1):
                if len(groups) > 1:
                    console().print(f"timed pass, {number} of {len(groups)}: {_title(rotation)}", highlight=False)
                time_rotation(rotation, self._store, self._pool, stamp)

    def _is_untimed(self, one: Claim) -> bool:
        try:
            return one.folder.failure() is None and needs_clock(one, asked_folder(one.cell, self._store).baseline)
        except Exception as error:  # an unreadable file of its own: only this cell cannot run
            one.fail(error)
            return False

    def _summarise(self, one: Claim) -> None:
        """Write the summary of each number of prompts that was asked for, or why there is none."""
        for cell in one.cells:
            folder = asked_folder(cell, self._store)
            try:
                records = folder.compared()
                if len(records) < len(folder.ids):
                    if folder.failure() is None:
                        one.fail(f"baseline: {folder.baseline.failure() or 'was not finished'}")
                elif folder.is_timed(summary := folder.summarised(records)):
                    if folder.config() is None:
                        one.folder.write_config(cell.record())
                    folder.write_summary(summary)
            except Exception as error:
                one.fail(error)


def _title(rotation: Sequence[Claim]) -> str:
    first = rotation[0].cell
    points = counted(len(rotation), "point")
    return f"{first.pair.name}, {first.task.name}, temperature {first.decoding.temperature:g}, {points}"
