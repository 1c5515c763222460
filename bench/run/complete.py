"""Complete cells: decode what is missing and time it. All launchers end here."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.run.console import console, counted
from bench.run.locks import Claim, Stamp, by_group, claim, machine
from bench.run.quality import QualityPass, Tracing, worker_count
from bench.run.requested_cell import RequestedCell, folder_of, has_other_scores
from bench.run.timed import needs_clock, time_group
from results.store.errors import StoreError
from results.store.sample import FailedSample
from results.store.traces import TraceFolder

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.engine import DecodingEngine
    from results.store.cells import Store

log = logging.getLogger(__name__)
PATIENCE_S = 0.5
"""Between two looks at a cell that another process decodes."""


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


def complete_cells(
    cells: Sequence[Cell], passes: Passes, store: Store, engine: DecodingEngine
) -> list[Cell]:
    """Complete the cells in two passes: all prompts without a clock, then the timed ones.

    A cell that fails does not stop the others: its folder says why. Returns the cells of groups
    that another process works on: they are left alone."""
    remaining = [
        cell
        for cell in cells
        if not is_current(RequestedCell(cell, store), cell.name in passes.traced)
    ]
    with ExitStack() as locks:
        planned = plan(remaining, store, locks)
        engine.prepare([claimed.cell for claimed in planned.claims.values()])
        quality_pass(planned.claims, planned.asked, passes, store, engine)
        await_baselines(planned, passes, store, engine)
        timed_pass(planned, passes, store, engine)
        for claimed in planned.claims.values():
            check(claimed, store)
    return [cell for cell in remaining if cell.name in planned.refused]


def forget_times(cells: Sequence[Cell], store: Store) -> None:
    """Forget what the clock said of these cells, so that one measuring session times them all."""
    timed = [folder_of(cell, store) for cell in cells if cell.timed]
    for folder in {folder.key: folder for folder in timed}.values():
        if folder.path.exists():
            with folder.lock(wait=True):
                folder.forget_times()


def is_current(folder: RequestedCell, is_traced: bool) -> bool:
    """Whether the cell is complete, its traces included where they are asked for, and what is on
    disk says so; failed prompts are tried again."""
    try:
        if not folder.is_complete() or any(
            isinstance(record, FailedSample) for record in folder.compared()
        ):
            return False
        # removed: invisible to whoever lists the store
        if None in (folder.config(), folder.baseline.config()):
            return False
        return not is_traced or folder.by_id().keys() <= TraceFolder(folder).covered()
    except StoreError:  # the pass that reads the file records why
        return False


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """What this process does of the open cells of a command.

    claims     name -> the cell, locked; baselines that lack something included.
    asked      names of the cells that are wanted for themselves.
    refused    name -> why another cell, or a baseline, is left alone.
    baselines  those of the cells that lack something, whoever writes them; only their samples are
               needed.
    """

    claims: Mapping[str, Claim]
    asked: Collection[str]
    refused: Mapping[str, str]
    baselines: Sequence[Cell]


def plan(cells: Sequence[Cell], store: Store, locks: ExitStack) -> ClaimPlan:
    """Hold the groups and baselines that no other process holds."""
    claims: dict[str, Claim] = {}
    refused = claim(by_group(cells), claims, store, locks)
    mine = [cell for cell in cells if cell.name not in refused]
    compared = [cell.baseline().replace(timed=0) for cell in mine if not cell.is_autoregressive]
    needed = {(baseline.name, baseline.n): baseline for baseline in compared}.values()
    baselines = [baseline for baseline in needed if lacks(baseline, store)]
    refused |= claim([[baseline] for baseline in baselines], claims, store, locks)
    return ClaimPlan(claims, {cell.name for cell in mine}, refused, baselines)


def lacks(cell: Cell, store: Store) -> bool:
    """Whether prompts of the cell were not answered or scored yet, or its configuration was
    removed."""
    folder = RequestedCell(cell, store)
    try:
        scored = cell.load_task().unscorable() is not None
        return (
            folder.config() is None
            or has_other_scores(cell, folder)
            or not set(folder.ids)
            <= {sample.id for sample in folder.good_samples() if scored or not sample.unscored}
        )
    except StoreError:  # the pass that reads the file records why
        return True


def quality_pass(
    claims: Mapping[str, Claim],
    asked: Collection[str],
    passes: Passes,
    store: Store,
    engine: DecodingEngine,
) -> None:
    """Decode what is missing, and score what another machine could not."""

    def tracing(cell: Cell) -> Tracing:
        if cell.name in asked and cell.name in passes.traced:
            return "all"
        return "decoded" if cell.name in passes.along and cell.engine.shows_positions else "none"

    for claimed in claims.values():
        claimed.score_anew()
    quality = QualityPass(claims, asked, tracing, passes.quality_batch, store)
    quality.score()
    if not quality.jobs:
        return
    engines = [claimed.cell.engine for claimed in claims.values()]
    # one model has all devices, or the engine decodes its batches by itself
    alone = any(engine.parallel != "none" or engine.name != "native" for engine in engines)
    workers = worker_count(passes.workers, {engine.device for engine in engines}, quality.jobs)
    with machine(alone=False):
        quality.run(1 if alone else workers, engine)


def await_baselines(
    planned: ClaimPlan, passes: Passes, store: Store, engine: DecodingEngine
) -> None:
    """Wait until other processes have decoded the baselines that they write; decode them when those
    have ended."""
    needed = {claimed.cell.baseline().name for claimed in planned.claims.values()}
    for baseline in planned.baselines:
        if baseline.name not in needed & planned.refused.keys():
            continue
        said = False
        while lacks(baseline, store):
            with ExitStack() as locks:
                claims: dict[str, Claim] = {}
                refused = claim([[baseline]], claims, store, locks)
                if claims:
                    quality_pass(claims, (), passes, store, engine)
                    break
            if not said:
                said = True
                log.warning("waiting for the baseline: %s", refused[baseline.name])
            time.sleep(PATIENCE_S)


def timed_pass(planned: ClaimPlan, passes: Passes, store: Store, engine: DecodingEngine) -> None:
    """Time what is not timed of the cells that are wanted for themselves, group after group."""
    asked = {
        name: claimed
        for name, claimed in planned.claims.items()
        if name in planned.asked and is_untimed(claimed, store)
    }
    groups = by_group(claimed.cell for claimed in asked.values())
    if not groups:
        return
    with machine(alone=not passes.shared):
        stamp = Stamp.now(passes.shared)
        for number, group in enumerate(groups, start=1):
            if len(groups) > 1:
                console().print(
                    f"timed pass, {number} of {len(groups)}: {title(group)}", highlight=False
                )
            # the clock's machine may be another one than that of the answers
            if started := [asked[cell.name] for cell in group if asked[cell.name].start()]:
                time_group(started, store, engine, stamp, passes.sessions)


def is_untimed(claimed: Claim, store: Store) -> bool:
    """Whether the clock has something left to do for the cell."""
    try:
        baseline = RequestedCell(claimed.cell, store).baseline
        return claimed.folder.failure() is None and needs_clock(claimed, baseline)
    except Exception as error:  # an unreadable file of its own: only this cell cannot run
        claimed.fail(error)
        return False


def check(claimed: Claim, store: Store) -> None:
    """Record why prompts are missing, for each number of them that was asked for."""
    for cell in claimed.cells:
        folder = RequestedCell(cell, store)
        try:
            records = folder.compared()
            if len(records) < len(folder.ids):
                if folder.failure() is None:
                    claimed.fail(f"baseline: {folder.baseline.failure() or 'was not finished'}")
            elif folder.config() is None:
                claimed.write_config()
        except Exception as error:
            claimed.fail(error)


def title(cells: Sequence[Cell]) -> str:
    """A group in words: `tiny, mini_gsm, temperature 0, 3 points`."""
    first, points = cells[0], counted(len(cells), "point")
    temperature = first.decoding.temperature
    return f"{first.pair.name}, {first.task.name}, temperature {temperature:g}, {points}"
