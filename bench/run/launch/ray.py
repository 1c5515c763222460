"""`launch=ray`: actors on this machine or on a cluster. Each completes one rotation after another and keeps the models
of the last one loaded. Ray restarts an actor that dies and runs its rotation again, which resumes."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bench.run.launch.work import Ended, Work, complete, next_for
from results.store.reasons import format_exception, log_to_stderr, one_line

if TYPE_CHECKING:
    from bench.config.schema import Pair
    from bench.config.settings import Ray
    from bench.run.engine import Engines


class Actor:
    """A worker."""

    def __init__(self) -> None:
        log_to_stderr()

    @cached_property
    def _engines(self) -> Engines:
        from bench.run.engine import Engines

        return Engines()

    def ready(self) -> tuple[str, ...]:
        """Answers as soon as the actor has its resources; no rotation waits for them."""
        return ()

    def complete(self, work: Work) -> tuple[str, ...]:
        """As `bench.run.launch.work.complete`."""
        return complete(work, self._engines)


@dataclass(slots=True)
class Busy:
    """An actor at work.

    actor  its handle.
    gpus   number of GPUs that it holds.
    pair   the pair whose models it has loaded.
    work   its rotation; None while it starts.
    """

    actor: Any
    gpus: int
    pair: Pair | None = None
    work: Work | None = None


def run(works: Sequence[Work], options: Ray) -> Generator[Ended, None, None]:
    """Complete the rotations in actors. Raises ValueError where the cluster is lost or lacks what a worker needs."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics unless the user enables them
    os.environ.setdefault("RAY_worker_niceness", "0")  # by default Ray's workers give way to every other process
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # avoids a warning; Ray will make it the default
    path = os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])  # the checkout
    try:
        ray.init(options.address, runtime_env={"env_vars": {"PYTHONPATH": path}}, logging_level=logging.WARNING)
    except Exception as error:  # Ray raises errors of many classes, also plain Exception
        address = options.address or "a cluster of this machine"
        raise ValueError(f"launch=ray: {address} cannot be started or reached: {one_line(error)}") from error
    try:
        yield from Actors(works, options).run()
    finally:
        ray.shutdown()


class Actors:
    """Assigns rotations to actors: the next one of the pair that an actor has loaded, or else the first."""

    def __init__(self, works: Sequence[Work], options: Ray) -> None:
        self._waiting, self._options = list(works), options
        self._busy: dict[Any, Busy] = {}
        self._reason = "no actor could be started"

    def run(self) -> Iterator[Ended]:
        """Yields each rotation when it has ended. Raises ValueError."""
        import ray

        for gpus in dict.fromkeys(work.gpus for work in self._waiting):
            for _ in range(self._count(gpus)):
                self._start(gpus)
        while self._busy:
            [reference], _ = ray.wait(list(self._busy))
            worker, left, failure, lives = self._busy.pop(reference), (), "", True
            try:
                left = ray.get(reference)
            except ray.exceptions.RayTaskError as error:  # an unwritable store, for example: the others continue
                failure = format_exception(error.cause)
            except ray.exceptions.RayError as error:  # the actor died more often than Ray restarts it
                failure, lives = f"launch=ray: {format_exception(error)}", False
                self._reason = failure
            if worker.work is not None:
                yield Ended(worker.work, left, failure)
            if lives:
                self._hand_out(worker)
            elif worker.work is not None:  # an actor that was never ready would fail again
                self._start(worker.gpus)
        for work in self._waiting:
            yield Ended(work, failure=self._reason)

    def _count(self, gpus: int) -> int:
        """How many actors: `launch.parallel`, or as many as the cluster has room for. Raises ValueError."""
        import ray

        rotations = sum(work.gpus == gpus for work in self._waiting)
        if self._options.parallel is not None:
            return min(self._options.parallel, rotations)
        present = ray.cluster_resources()
        room = int(present.get("CPU", 0) // self._options.cpus)
        room = min(room, int(present.get("GPU", 0) // gpus)) if gpus else room
        if not room:
            raise ValueError(f"launch=ray: a worker needs {self._options.cpus:g} CPUs and {gpus} GPUs; the cluster has "
                             f"{present.get('CPU', 0):g} and {present.get('GPU', 0):g} in all; give launch.parallel if "
                             "it grows on demand")
        return min(room, rotations)

    def _start(self, gpus: int) -> None:
        """Start another actor if a rotation waits for one with this number of GPUs."""
        import ray

        if any(work.gpus == gpus for work in self._waiting):
            made = ray.remote(Actor).options(num_cpus=self._options.cpus, num_gpus=gpus,
                                             max_restarts=self._options.restarts,
                                             max_task_retries=self._options.restarts)
            worker = Busy(made.remote(), gpus)
            self._busy[worker.actor.ready.remote()] = worker

    def _hand_out(self, worker: Busy) -> None:
        """Give an actor its next rotation, or end it, which frees its GPUs for others."""
        import ray

        worker.work = next_for(worker.pair, (work for work in self._waiting if work.gpus == worker.gpus))
        if worker.work is None:
            ray.kill(worker.actor)
            return
        self._waiting.remove(worker.work)
        worker.pair = worker.work.pair
        self._busy[worker.actor.complete.remote(worker.work)] = worker
