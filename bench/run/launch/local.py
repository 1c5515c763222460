"""`launch=local`: processes on this machine, one for each GPU, or for each group of GPUs that a model needs; a single
process is the command itself."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from typing import TYPE_CHECKING

from bench.run.launch.process import prepare
from bench.run.launch.work import Ended, Work, complete, next_for
from results.store.reasons import format_exception

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.schema import Pair
    from bench.config.settings import Launcher
    from bench.run.engine import Engines

MOST_DEATHS = 3
"""A rotation fails after this many deaths of its workers."""
VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA names them."""
    import torch

    named = os.environ.get(VISIBLE)
    return named.split(",") if named else [str(index) for index in range(torch.cuda.device_count())]


def processes(options: Launcher, cells: Sequence[Cell]) -> int:
    """How many processes: `launch.parallel`, or one for each group of `engine.devices` GPUs, on a CPU one; at most one
    for each rotation."""
    rotations = {cell.rotation_key for cell in cells}
    asked = options.parallel
    if asked is None:
        on_gpus = all(cell.engine.device == "cuda" for cell in cells)
        asked = len(gpus()) // min(cell.engine.devices for cell in cells) if on_gpus else 1
    return max(1, min(asked, len(rotations)))


def shares(count: int, devices: int) -> list[dict[str, str]]:
    """The environment of each of `count` processes: the GPUs are dealt out evenly, at least `devices` to each, and so
    are the cores."""
    import torch

    names, threads = gpus(), max(1, torch.get_num_threads() // count)
    each = max(devices, len(names) // count)
    dealt = [names[place * each % len(names):][:each] if names else [] for place in range(count)]
    return [{"OMP_NUM_THREADS": str(threads)} | ({VISIBLE: ",".join(own)} if own else {}) for own in dealt]


class Worker:
    """A process that completes one rotation after the other; the models of the last one stay loaded."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)
        self._start()

    def _start(self) -> None:
        self.pair: Pair | None = None
        self._executor = ProcessPoolExecutor(1, get_context("spawn"), prepare, (self._variables,))

    def submit(self, work: Work) -> Future[tuple[str, ...]]:
        """Begin a rotation."""
        self.pair = work.pair
        return self._executor.submit(complete_here, work)

    def restart(self) -> None:
        """Start another process in place of one that died."""
        self._executor.shutdown(wait=False)
        self._start()

    def end(self) -> None:
        """End the process at once."""
        for process in list((self._executor._processes or {}).values()):
            process.kill()
        self._executor.shutdown(wait=False, cancel_futures=True)


def run(works: Sequence[Work], options: Launcher) -> Generator[Ended, None, None]:
    """Complete the rotations in processes, those that need the same number of GPUs at a time; a rotation whose process
    dies is resumed by another one."""
    for gpus_each in dict.fromkeys(work.gpus for work in works):
        own = [work for work in works if work.gpus == gpus_each]
        count = processes(options, [cell for work in own for cell in work.cells])
        yield from run_in(shares(count, max(1, gpus_each)), own)


def run_in(variables: Sequence[Mapping[str, str]], works: Sequence[Work]) -> Generator[Ended, None, None]:
    """Complete rotations in processes, one for each of these environments."""
    workers = [Worker(own) for own in variables]
    waiting, deaths = list(works), Counter[str]()
    idle, busy = list(workers), dict[Future[tuple[str, ...]], tuple[Worker, Work]]()
    try:
        while waiting or busy:
            while idle and (work := next_for(idle[0].pair, waiting)) is not None:
                waiting.remove(work)
                worker = idle.pop(0)
                busy[worker.submit(work)] = worker, work
            for future in wait(busy, return_when="FIRST_COMPLETED").done:
                worker, work = busy.pop(future)
                idle.append(worker)
                try:
                    yield Ended(work, future.result())
                except BrokenProcessPool:
                    worker.restart()
                    deaths[work.rotation] += 1
                    if deaths[work.rotation] < MOST_DEATHS:
                        waiting.insert(0, work)
                    else:
                        yield Ended(work, failure=f"{MOST_DEATHS} processes died while working on it; is there "
                                                  "enough memory?")
                except Exception as error:  # a store that cannot be written, for example: the others continue
                    yield Ended(work, failure=format_exception(error))
    finally:
        for worker in workers:
            worker.end()


@cache
def engines() -> Engines:
    """The engines of this worker."""
    from bench.run.engine import Engines

    return Engines()


def complete_here(work: Work) -> tuple[str, ...]:
    """`complete`, in a worker."""
    return complete(work, engines())
