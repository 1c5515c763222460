"""Complete the cells of a command: hand their groups to the launcher until all are complete.

`launch=local`: processes on this machine, one for each GPU, or for each group of GPUs that a model
needs; a single process is the command itself. `launch=slurm`: job arrays with one task per group,
through submitit; Slurm throttles, logs and requeues them. `launch=ray`: tasks on this machine or on
a cluster, one per group. Ray does a task again whose process dies, and the group resumes; a process
that it keeps has the models of the last group loaded."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.config.paths import socket_folder
from bench.run.claims import by_group
from bench.run.console import console
from bench.run.pool import MOST_DEATHS, Child, Died, ProcessPool, gpus, shares
from bench.run.requested_cell import RequestedCell
from bench.run.timed import title
from results.store.cells import Store
from results.store.errors import (
    StoreError,
    format_exception,
    log_to_stderr,
    one_line,
    redacted_word,
)

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.schema import Pair
    from bench.config.section import Named
    from bench.config.settings import Launcher, Ray, Slurm
    from bench.run.claims import Passes
    from bench.run.engine import DecodingEngine

    Measure = Callable[[Sequence[Cell], Passes, Store, DecodingEngine], list[Cell]]

log = logging.getLogger(__name__)
POLL_S = 5.0
"""Seconds between two looks for results of Slurm's tasks."""
DIED = f"{MOST_DEATHS} processes died while working on it; is there enough memory?"
RAY_OFF = (
    "RAY_USAGE_STATS_ENABLED",  # no usage statistics unless the user enables them
    "RAY_worker_niceness",  # by default Ray's workers give way to every other process
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",  # avoids a warning; Ray will make it the default
)
"""Variables that are 0 for Ray where the user sets none."""


@dataclass(frozen=True, slots=True)
class GroupJob:
    """A group of cells, with what a worker needs to complete it. Results go only to the store.

    measure   completes them.
    cells     of one group; at least one.
    passes    how they are completed.
    store     the store's folder, absolute.
    checkout  the folder to which paths of the cells are relative.
    argv      the command, as environment.json records it, without secrets.
    """

    measure: Measure
    cells: tuple[Cell, ...]
    passes: Passes
    store: Path
    checkout: Path
    argv: tuple[str, ...]

    @property
    def pair(self) -> Pair:
        """The pair whose models the group needs."""
        return self.cells[0].pair

    @property
    def gpus(self) -> int:
        """GPUs that a worker needs for it."""
        engine = self.cells[0].engine
        return engine.devices if engine.device == "cuda" else 0

    def __str__(self) -> str:
        return title(self.cells)


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What became of a group.

    left     names of its cells that another process works on.
    failure  why its worker could not complete it; empty on success, or if the cells' folders say
             why.
    """

    work: GroupJob
    left: tuple[str, ...] = ()
    failure: str = ""


def launch(
    measure: Measure,
    cells: Sequence[Cell],
    passes: Passes,
    launcher: Named[Launcher],
    store: Store,
    engine: DecodingEngine,
) -> list[Cell]:
    """Have `measure` complete open cells once, in this process or in workers. Returns those that
    another process works on."""
    name, options = launcher.name, launcher.options
    if name == "local" and processes(options, cells) == 1:
        return measure(cells, passes, store, engine)
    passes = replace(passes, shared=not options.has_own_machines)
    works = works_of(measure, cells, passes, store)
    left = set[str]()
    console().print(f"launch={name}: {len(works)} groups", highlight=False)
    with closing(LAUNCHERS[name](works, options)) as ended:
        for number, end in enumerate(ended, start=1):
            state = "is being measured elsewhere" if end.left else "done"
            left.update(end.left)
            if end.failure:
                state = f"failed: {end.failure}"
                record_failure(end, passes, store)
            console().print(
                f"{number} of {len(works)} groups: {end.work}: {state}", highlight=False
            )
    return [cell for cell in cells if cell.name in left]


def record_failure(ended: GroupResult, passes: Passes, store: Store) -> None:
    """Record why a group could not be completed in the folders of its open cells."""
    for cell in ended.work.cells:
        folder = RequestedCell(cell, store)
        try:
            if folder.todo(is_traced=cell.name in passes.traced):
                with folder.lock():
                    folder.write_failure(ended.failure)
        # a worker that is lost to the launcher and still writes, or a full disk
        except StoreError as error:
            log.warning("%s: %s", ended.failure, error)


def works_of(
    measure: Measure, cells: Sequence[Cell], passes: Passes, store: Store
) -> list[GroupJob]:
    """The groups of these cells: those that need the most GPUs first, then pair by pair. Raises
    ValueError."""
    for cell in cells:
        if ":" in cell.engine.device:
            raise ValueError(
                f"engine.device={cell.engine.device}: the launcher gives each worker its GPU; give "
                "engine.device=cuda"
            )
    path, argv = store.root.absolute(), tuple(map(redacted_word, sys.argv))
    works = [
        GroupJob(measure, tuple(group), passes, path, Path.cwd(), argv) for group in by_group(cells)
    ]
    return sorted(works, key=lambda work: -work.gpus)


def complete(work: GroupJob, engine: DecodingEngine) -> tuple[str, ...]:
    """Complete a group in this process, with the models that `engine` has loaded. Returns the names
    of the cells that another process works on. Raises ConfigError where this process has fewer GPUs
    than the group needs."""
    os.chdir(work.checkout)
    sys.argv = list(work.argv)
    work.cells[0].engine.check_device()
    left = work.measure(work.cells, work.passes, Store(work.store), engine)
    return tuple(cell.name for cell in left)


def processes(options: Launcher, cells: Sequence[Cell]) -> int:
    """How many processes: `launch.parallel`, or one for each group of `engine.devices` GPUs, on a
    CPU one; at most one for each group."""
    asked = options.parallel
    if asked is None:
        on_gpus = all(cell.engine.device == "cuda" for cell in cells)
        asked = len(gpus()) // min(cell.engine.devices for cell in cells) if on_gpus else 1
    return max(1, min(asked, len(by_group(cells))))


def run_local(works: Sequence[GroupJob], options: Launcher) -> Generator[GroupResult, None, None]:
    """Complete the groups in processes, those that need the same number of GPUs at a time. Each
    goes on with the pair that it has loaded; a group whose process dies is resumed by another
    one."""
    for gpus_each in dict.fromkeys(work.gpus for work in works):
        waiting = [work for work in works if work.gpus == gpus_each]
        count = processes(options, [cell for work in waiting for cell in work.cells])
        starts = [
            partial(Child, "spawn", f"process {number}", variables, worker)
            for number, variables in enumerate(shares(count, max(1, gpus_each)), start=1)
        ]

        def next_work(
            before: GroupJob | None, waiting: list[GroupJob] = waiting
        ) -> GroupJob | None:
            same = [work for work in waiting if before and work.pair == before.pair] or waiting
            return waiting.pop(waiting.index(same[0])) if same else None

        with ProcessPool[GroupJob](starts, lambda work: f"resuming {work}") as pool:
            for work, left in pool.run(next_work):
                if isinstance(left, Died):
                    yield GroupResult(work, failure=DIED)
                elif isinstance(left, Exception):
                    yield GroupResult(work, failure=str(left))
                else:
                    yield GroupResult(work, left)


@cache
def worker() -> Callable[[GroupJob], tuple[str, ...]]:
    """Completes groups in a process that goes on; the models of the last one stay loaded."""
    from bench.run.engine import Engines

    return partial(complete, engine=Engines())


class SlurmTask:
    """A task of Slurm's array. If Slurm is about to end it, because of its time limit or
    pre-emption, it is requeued, and the group resumes."""

    def __call__(self, work: GroupJob) -> tuple[str, ...]:
        from bench.run.engine import Engines

        log_to_stderr()
        return complete(work, Engines())

    def checkpoint(self, work: GroupJob) -> Any:
        """The requeued task, which does the same."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, work)


def run_slurm(works: Sequence[GroupJob], options: Slurm) -> Generator[GroupResult, None, None]:
    """Complete the groups in tasks, and wait for them. Tasks still running when the generator is
    closed, as by Ctrl-C, are cancelled. Raises ValueError if Slurm refuses the jobs."""
    from submitit.helpers import as_completed

    if shutil.which("sbatch") is None:
        raise ValueError(
            "launch=slurm: no sbatch on the PATH; run the command on a login node of the cluster"
        )
    jobs: dict[Any, GroupJob] = {}
    try:
        for gpus_each in dict.fromkeys(work.gpus for work in works):
            alike = [work for work in works if work.gpus == gpus_each]
            jobs |= dict(zip(submit(alike, gpus_each, options), alike, strict=True))
        for job in as_completed(list(jobs), poll_frequency=POLL_S):
            yield outcome(job, jobs.pop(job))
    finally:
        if jobs:
            subprocess.run(["scancel", *(job.job_id for job in jobs)], check=False)


def submit(works: Sequence[GroupJob], gpus_each: int, options: Slurm) -> list[Any]:
    """One array for groups that need the same number of GPUs. Raises ValueError, also for a secret
    in `setup` or `sbatch`, which submitit writes into its script."""
    from submitit import SlurmExecutor

    for line in (*options.setup, *(f"{name}={value}" for name, value in options.sbatch.items())):
        if (shown := redacted_word(line)) != line:
            raise ValueError(
                f"launch={{setup,sbatch}}: {one_line(shown)}: holds a secret, which would lie in "
                "the job's script; export the variable before the command, Slurm hands it on"
            )
    started = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    executor = SlurmExecutor(options.logs / started, max_num_timeout=options.requeues)
    chosen = {
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "mem": None if options.memory_gb is None else f"{options.memory_gb}GB",
        "gpus_per_node": gpus_each or None,
        "exclusive": options.exclusive or None,
        "array_parallelism": options.parallel,
    }
    try:
        executor.update_parameters(
            job_name="leeway",
            time=options.minutes,
            cpus_per_task=options.cpus,
            setup=[f"export OMP_NUM_THREADS={options.cpus}", *options.setup],
            additional_parameters={"requeue": True, **options.sbatch},
            **{name: value for name, value in chosen.items() if value is not None},
        )
        return executor.map_array(SlurmTask(), works)
    except (subprocess.SubprocessError, RuntimeError, OSError) as error:
        raise ValueError(f"launch=slurm: Slurm refuses the jobs: {one_line(error)}") from error


def outcome(job: Any, work: GroupJob) -> GroupResult:
    """The result or the error of a task that has ended."""
    from submitit.core.utils import UncompletedJobError

    error = job.exception()
    if error is None:
        return GroupResult(work, job.result())
    if isinstance(error, UncompletedJobError):
        said = f"its Slurm task {job.job_id} ended without a result ({job.state.lower()})"
        return GroupResult(work, failure=f"{said}; log: {job.paths.stderr}")
    lines = filter(None, str(error).splitlines())
    *_, last = (line for line in lines if not line.startswith((" ", "-", "You can")))
    said = f"{one_line(last)} (Slurm task {job.job_id}, log: {job.paths.stderr})"
    return GroupResult(work, failure=said)


def work_of_ray(work: GroupJob) -> tuple[str, ...]:
    """As `complete`, in a process that Ray keeps: the models of its last group stay loaded."""
    log_to_stderr()
    return worker()(work)


def run_ray(works: Sequence[GroupJob], options: Ray) -> Generator[GroupResult, None, None]:
    """Complete the groups in tasks of Ray. Raises ValueError where the cluster is lost or lacks
    what one needs."""
    import ray

    for variable in RAY_OFF:
        os.environ.setdefault(variable, "0")
    # the checkout comes first
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    environment = {"env_vars": {"PYTHONPATH": path}}
    try:
        ray.init(
            options.address,
            runtime_env=environment,
            logging_level=logging.WARNING,
            # a cluster that runs already has its folder
            _temp_dir=None if options.address else f"{socket_folder()}/ray",
        )
    except Exception as error:  # Ray raises errors of many classes, also plain Exception
        address = options.address or "a cluster of this machine"
        raise ValueError(
            f"launch=ray: {address} cannot be started or reached: {one_line(error)}"
        ) from error
    try:
        yield from _ray_tasks(works, options)
    finally:
        ray.shutdown()


def _ray_tasks(works: Sequence[GroupJob], options: Ray) -> Iterator[GroupResult]:
    """At most `launch.parallel` tasks at once; without it, all wait for room on the cluster."""
    import ray

    present = ray.cluster_resources()
    cpus, gpus = present.get("CPU", 0), present.get("GPU", 0)
    most = max((work.gpus for work in works), default=0)
    if options.parallel is None and (cpus < options.cpus or gpus < most):
        raise ValueError(
            f"launch=ray: a worker needs {options.cpus:g} CPUs and {most} GPUs; the cluster has "
            f"{cpus:g} and {gpus:g} in all; give launch.parallel if it grows on demand"
        )
    waiting, running = list(works), dict[Any, GroupJob]()
    while waiting or running:
        while waiting and len(running) < (options.parallel or len(works)):
            work = waiting.pop(0)
            task = ray.remote(
                num_cpus=options.cpus,
                num_gpus=work.gpus,
                max_retries=options.restarts,
                max_calls=0,  # its process is kept, on a GPU too
            )(work_of_ray)
            running[task.remote(work)] = work
        [reference], _ = ray.wait(list(running))
        work = running.pop(reference)
        try:
            yield GroupResult(work, ray.get(reference))
        # an unwritable store, for example: the others continue
        except ray.exceptions.RayTaskError as error:
            yield GroupResult(work, failure=format_exception(error.cause))
        # its process died more often than Ray repeats the task
        except ray.exceptions.RayError as error:
            yield GroupResult(work, failure=f"launch=ray: {format_exception(error)}")


LAUNCHERS: Mapping[str, Callable[[Sequence[GroupJob], Any], Generator[GroupResult, None, None]]] = {
    "local": run_local,
    "slurm": run_slurm,
    "ray": run_ray,
}
"""launch=NAME -> yields each group when it has ended."""
