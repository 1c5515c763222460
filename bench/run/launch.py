"""Complete the cells of a command: hand their rotations to the launcher until all are complete.

`launch=local`: processes on this machine, one for each GPU, or for each group of GPUs that a model needs; a single
process is the command itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.run.clusters import run_ray, run_slurm
from bench.run.complete import Passes, complete_cells, forget_times, is_current
from bench.run.console import console
from bench.run.locks import await_holder
from bench.run.pool import MOST_DEATHS, Child, Died, Pool, gpus, shares
from bench.run.requested_cell import RequestedCell
from bench.run.work import Ended, Work, complete, next_for, works_of
from results.store.errors import StoreError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Launcher, Settings
    from bench.run.engine import Engine
    from results.store.cells import Store

log = logging.getLogger(__name__)


def run_cells(cells: Sequence[Cell], settings: Settings, store: Store, engine: Engine,
              traced: Collection[str] = (), shown: Collection[str] = (), sessions: int = 1) -> None:
    """Complete the cells through the launcher. Cells named in `traced` are traced even without trace=true. Of cells
    named in `shown`, the answers that are decoded anyway are traced, unless trace=false.

    Failures are recorded in the cells' folders. Rotations that another process works on come last; if that process ends
    without completing them, they are completed here."""
    names = frozenset(cell.name for cell in cells if settings.trace is True or cell.name in traced)
    along = frozenset(shown) if settings.trace else frozenset[str]()
    passes = Passes(names, along, settings.quality_batch, settings.workers, sessions)
    if settings.fresh:
        forget_times(cells, store)
    asked = list({(cell.name, cell.n, cell.timed): cell for cell in cells}.values())
    remaining = asked
    while remaining := [cell for cell in remaining if not is_current(RequestedCell(cell, store), cell.name in names)]:
        remaining = launch(remaining, passes, settings, store, engine)
        for cell in remaining:
            await_holder(cell, store)


def launch(cells: Sequence[Cell], passes: Passes, settings: Settings, store: Store, engine: Engine) -> list[Cell]:
    """Complete open cells once, in this process or in workers. Returns those that another process works on."""
    name, options = settings.launch.name, settings.launch.options
    if name == "local" and processes(options, cells) == 1:
        return complete_cells(cells, passes, store, engine)
    works, left = works_of(cells, replace(passes, shared=not options.has_own_machines), store), set[str]()
    console().print(f"launch={name}: {len(works)} rotations", highlight=False)
    with closing(LAUNCHERS[name](works, options)) as ended:
        for number, end in enumerate(ended, start=1):
            state = f"failed: {end.failure}" if end.failure else "is being measured elsewhere" if end.left else "done"
            console().print(f"{number} of {len(works)} rotations: {end.work}: {state}", highlight=False)
            left.update(end.left)
            if end.failure:
                record_failure(end, passes, store)
    return [cell for cell in cells if cell.name in left]


def record_failure(ended: Ended, passes: Passes, store: Store) -> None:
    """Record why a rotation could not be completed in the folders of its open cells."""
    for cell in ended.work.cells:
        folder = RequestedCell(cell, store)
        try:
            if not is_current(folder, cell.name in passes.traced):
                with folder.lock():
                    folder.write_failure(ended.failure)
        except StoreError as error:  # a worker that is lost to the launcher and still writes, or a full disk
            log.warning("%s: %s", ended.failure, error)


def processes(options: Launcher, cells: Sequence[Cell]) -> int:
    """How many processes: `launch.parallel`, or one for each group of `engine.devices` GPUs, on a CPU one; at most one
    for each rotation."""
    rotations = {cell.rotation_key for cell in cells}
    asked = options.parallel
    if asked is None:
        on_gpus = all(cell.engine.device == "cuda" for cell in cells)
        asked = len(gpus()) // min(cell.engine.devices for cell in cells) if on_gpus else 1
    return max(1, min(asked, len(rotations)))


def run_local(works: Sequence[Work], options: Launcher) -> Generator[Ended, None, None]:
    """Complete the rotations in processes, those that need the same number of GPUs at a time. Each goes on with the
    pair that it has loaded; a rotation whose process dies is resumed by another one."""
    for gpus_each in dict.fromkeys(work.gpus for work in works):
        waiting = [work for work in works if work.gpus == gpus_each]
        count = processes(options, [cell for work in waiting for cell in work.cells])
        starts = [partial(Child, "spawn", f"process {number}", own, worker)
                  for number, own in enumerate(shares(count, max(1, gpus_each)), start=1)]

        def next_work(before: Work | None, waiting: list[Work] = waiting) -> Work | None:
            if (work := next_for(None if before is None else before.pair, waiting)) is not None:
                waiting.remove(work)
            return work

        with Pool[Work](starts, lambda work: f"resuming {work}") as pool:
            for work, left in pool.run(next_work):
                if isinstance(left, Died):
                    yield Ended(work, failure=f"{MOST_DEATHS} processes died while working on it; is there enough "
                                              "memory?")
                elif isinstance(left, Exception):
                    yield Ended(work, failure=str(left))
                else:
                    yield Ended(work, left)


def worker() -> Callable[[Work], tuple[str, ...]]:
    """Completes rotations in a process of `launch=local`; the models of the last one stay loaded."""
    from bench.run.engine import Engines

    return partial(complete, engine=Engines())


LAUNCHERS: Mapping[str, Callable[[Sequence[Work], Any], Generator[Ended, None, None]]] = {
    "local": run_local, "slurm": run_slurm, "ray": run_ray}
"""launch=NAME -> yields each rotation when it has ended."""
