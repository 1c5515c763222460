"""Processes that work for this one, and the one rule for those that die.

A process takes one task after another. When it dies, its task is done again by another process;
after a second death in parts, so that what kills processes stands alone. A task on which
`MOST_DEATHS` processes died has failed.

Imports no torch: a process sets its environment before anything else does."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing import connection as pipes
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from bench.config.paths import socket_folder
from results.store.errors import format_exception, log_to_stderr

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

log = logging.getLogger(__name__)
MOST_DEATHS = 3
MOST_STARTS, PAUSE_S = 300, 0.1
"""Attempts to start a process, and the seconds between two of them."""
PRELOADED = [
    "bench.run.pool",
    "bench.run.jobs",
    "transformers.generation",
    "methods.engine.loading",
]
"""Imported once, before processes are forked from the server: they start in a moment and share the
code's memory."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
Task = TypeVar("Task")


class Died(RuntimeError):
    """The processes that worked on a task have died. The message is the last one's obituary, one
    line.

    cause  what that one died of: `signal 9`, `exit status 1`."""

    def __init__(self, obituary: str, cause: str) -> None:
        super().__init__(obituary)
        self.cause = cause


class WorkerError(RuntimeError):
    """A task raised an error. The message is one line."""


class Process(Protocol):
    """A process as a pool sees it: one result comes back for each task."""

    def send(self, task: Any) -> None:
        """Begin a task. Raises OSError where the process has died."""

    def receive(self) -> Any:
        """The result of the task. Raises EOFError or OSError where the process has died, and other
        errors of the task alone."""

    def fileno(self) -> int:
        """A file that can be read once there is a result, or none will come."""

    def died(self) -> Died:
        """How the process died."""

    def end(self) -> None:
        """End it, whatever it does."""


@dataclass(slots=True)
class _Worker(Generic[Task]):
    """One place of a pool.

    process  None before the first start and after a death.
    task     what it works on, and how many processes died on that before.
    last     the task before it.
    """

    start: Callable[[], Process]
    process: Process | None = None
    task: tuple[Task, int] | None = None
    last: Task | None = None

    def running(self) -> Process:
        """Its process, started where none runs."""
        self.process = self.process or self.start()
        return self.process

    def end(self) -> None:
        """End its process."""
        if self.process is not None:
            self.process.end()
        self.process = self.task = self.last = None


class ProcessPool(Generic[Task]):
    """Processes that take tasks, one for each of `starts`, until `close`.

    `again` says of a task, in a warning, what is done when its process has died; `parts` splits one
    into those that are tried alone after a second death."""

    def __init__(
        self,
        starts: Sequence[Callable[[], Process]],
        again: Callable[[Task], str],
        parts: Callable[[Task], Sequence[Task]] = lambda task: [task],
    ) -> None:
        self._workers: list[_Worker[Task]] = [_Worker(start) for start in starts]
        self._describe, self._parts = again, parts
        self._again: deque[tuple[Task, int]] = deque()

    def start(self) -> None:
        """Start the processes that do not run; a task starts its own."""
        for worker in self._workers:
            worker.running()

    def run(self, next_task: Callable[[Task | None], Task | None]) -> Iterator[tuple[Task, Any]]:
        """Do tasks until `next_task` gives None while none is under way. It gets the task that the
        process which asks did before. Yields each task with its result; one that has failed with
        Died, or with the error of its process."""
        while True:
            for worker in self._workers:
                if worker.task is not None:
                    continue
                task, deaths = self._again.popleft() if self._again else (next_task(worker.last), 0)
                if task is None:
                    break
                process = worker.running()
                worker.task = task, deaths
                try:
                    process.send(task)
                except OSError:
                    yield from self._lose(worker, process)
            busy = {
                worker.process: worker for worker in self._workers if worker.process and worker.task
            }
            if busy:
                ready: Sequence[Any] = pipes.wait(cast("list[Connection]", list(busy)))
                for process in ready:
                    yield from self._finish(busy[process], process)
            elif not self._again:
                return

    def call(self, task: Task) -> Any:
        """The result of one task. Raises Died, and the errors of the process."""
        tasks = iter([task])
        [(_, result)] = self.run(lambda _: next(tasks, None))
        if isinstance(result, Exception):
            raise result
        return result

    def _finish(self, worker: _Worker[Task], process: Process) -> Iterator[tuple[Task, Any]]:
        """There is a result of a worker, or its process has died."""
        assert worker.task is not None
        task, _ = worker.task
        try:
            result = process.receive()
        except (EOFError, OSError):
            yield from self._lose(worker, process)
            return
        except Exception as error:  # what the process says of the task
            result = error
        worker.last, worker.task = task, None
        yield task, result

    def _lose(self, worker: _Worker[Task], process: Process) -> Iterator[tuple[Task, Died]]:
        """The process of a worker has died."""
        assert worker.task is not None
        task, deaths = worker.task
        death = process.died()
        worker.end()
        if deaths + 1 == MOST_DEATHS:
            yield task, death
            return
        log.warning("%s: %s", death, self._describe(task))
        self._again.extend((part, deaths + 1) for part in (self._parts(task) if deaths else [task]))

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.end()

    def __enter__(self) -> ProcessPool[Task]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def shares(count: int, devices: int) -> list[dict[str, str]]:
    """The environment of each of `count` processes: the cores are dealt out evenly, and so are the
    GPUs, at least `devices` to each; none where that is 0."""
    from methods.engine.device import DEFAULT_THREADS

    names = gpus() if devices else []
    each = max(devices, len(names) // count)
    environments = []
    for place in range(count):
        variables = {"OMP_NUM_THREADS": str(max(1, DEFAULT_THREADS // count))}
        if names:
            variables[VISIBLE] = ",".join(names[place * each % len(names) :][:each])
        environments.append(variables)
    return environments


def gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA names them."""
    import torch

    named = os.environ.get(VISIBLE)
    return named.split(",") if named else [str(index) for index in range(torch.cuda.device_count())]


class Child:
    """A process of this program. It ends with this one.

    `method`     as in multiprocessing: `spawn`, or `forkserver`, whose server has no threads, CUDA
                 or locks of a store.
    `name`       in messages.
    `variables`  environment variables that it sets first.
    `make`       then called in it; gives what does a task and returns its result."""

    def __init__(
        self,
        method: str,
        name: str,
        variables: Mapping[str, str],
        make: Callable[[], Callable[[Any], Any]],
    ) -> None:
        context: Any = get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(PRELOADED)
        for attempt in count(1):
            self._connection, other = context.Pipe()
            self._process = context.Process(target=_work, args=(other, dict(variables)), name=name)
            try:
                with _sockets_in_a_short_folder():
                    self._process.start()
                break
            # the server was killed: once it has gone, a start brings it back
            except (EOFError, OSError):
                self._connection.close()
                if attempt == MOST_STARTS:
                    raise
                time.sleep(PAUSE_S)
            finally:
                other.close()
        with suppress(OSError):  # it has died: the first task will show it
            self._connection.send(make)

    def send(self, task: Any) -> None:
        self._connection.send(task)

    def receive(self) -> Any:
        return self._connection.recv()

    def fileno(self) -> int:
        return self._connection.fileno()

    def died(self) -> Died:
        self._process.join()
        code = self._process.exitcode or 0
        cause = f"signal {-code}" if code < 0 else f"exit status {code}"
        return Died(f"{self._process.name} (process {self._process.pid}) died, {cause}", cause)

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()


@contextmanager
def _sockets_in_a_short_folder() -> Iterator[None]:
    """The forkserver's socket lies in the folder for temporary files."""
    folder = tempfile.gettempdir()
    tempfile.tempdir = socket_folder()
    try:
        yield
    finally:
        tempfile.tempdir = folder


def _work(connection: Connection, variables: Mapping[str, str]) -> None:
    """A child: do tasks until it is ended."""
    os.environ.update(variables)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    log_to_stderr()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    do = connection.recv()()  # imports torch only now
    while True:
        task = connection.recv()
        try:
            result = do(task)
        # a store that cannot be written, for example: of this task alone
        except Exception as error:
            result = WorkerError(format_exception(error))
        connection.send(result)


def _end_with_parent() -> None:
    """Wait until the parent has ended, and then end this process at once."""
    parent = parent_process()
    if parent is not None:
        pipes.wait([parent.sentinel])
        os._exit(1)
