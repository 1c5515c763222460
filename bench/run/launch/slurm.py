"""`launch=slurm`: job arrays with one task per rotation, through submitit. Slurm throttles, logs and requeues them."""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from collections.abc import Generator, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bench.run.launch.work import Ended, Work, complete, sealed, unsealed
from results.store.reasons import log_to_stderr, one_line
from results.store.redaction import redacted_word

if TYPE_CHECKING:
    from bench.config.settings import Slurm

log = logging.getLogger(__name__)
POLL_S = 5.0
"""Seconds between two queries of the queue."""
LATE_S = 10.0
"""Seconds after which a result is missing: on a shared file system it may appear after its task left the queue."""
OVER = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
        "REVOKED", "TIMEOUT")
GONE = "gone from the queue"


class Task:
    """A task of the array. If Slurm is about to end it, because of its time limit or pre-emption, it is requeued, and
    the rotation resumes."""

    def __call__(self, work: bytes) -> tuple[str, ...]:
        from bench.run.engine import Engines

        log_to_stderr()
        return complete(unsealed(work), Engines())

    def checkpoint(self, work: bytes) -> Any:
        """The requeued task, which does the same."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, work)


def run(works: Sequence[Work], options: Slurm) -> Generator[Ended, None, None]:
    """Complete the rotations in tasks, and wait for them. Tasks still running when the generator is closed, as by
    Ctrl-C, are cancelled. Raises ValueError if Slurm refuses the jobs."""
    if shutil.which("sbatch") is None:
        raise ValueError("launch=slurm: no sbatch on the PATH; run the command on a login node of the cluster")
    jobs: dict[Any, Work] = {}
    try:
        for gpus in dict.fromkeys(work.gpus for work in works):
            own = [work for work in works if work.gpus == gpus]
            jobs |= dict(zip(submit(own, gpus, options), own, strict=True))
        yield from wait(jobs)
    finally:
        if jobs:
            subprocess.run(["scancel", *(job.job_id for job in jobs)], check=False)


def submit(works: Sequence[Work], gpus: int, options: Slurm) -> list[Any]:
    """One array for rotations that need the same number of GPUs. Raises ValueError, also for a secret in `setup` or
    `sbatch`, which submitit writes into its script."""
    from submitit import SlurmExecutor

    for line in (*options.setup, *(f"{name}={value}" for name, value in options.sbatch.items())):
        if (shown := redacted_word(line)) != line:
            raise ValueError(f"launch={{setup,sbatch}}: {one_line(shown)}: holds a secret, which would lie in the "
                             "job's script; export the variable before the command, Slurm hands it on")
    started = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    executor = SlurmExecutor(options.logs / started, max_num_timeout=options.requeues)
    threads = [f"export OMP_NUM_THREADS={options.cpus}"]
    chosen = {"partition": options.partition, "account": options.account, "qos": options.qos,
              "mem": None if options.memory_gb is None else f"{options.memory_gb}GB", "gpus_per_node": gpus or None,
              "exclusive": options.exclusive or None, "array_parallelism": options.parallel}
    try:
        executor.update_parameters(
            job_name="leeway", time=options.minutes, cpus_per_task=options.cpus, setup=[*threads, *options.setup],
            additional_parameters={"requeue": True, **options.sbatch},
            **{name: value for name, value in chosen.items() if value is not None})
        return executor.map_array(Task(), [sealed(work) for work in works])
    except (subprocess.SubprocessError, RuntimeError, OSError) as error:
        raise ValueError(f"launch=slurm: Slurm refuses the jobs: {one_line(error)}") from error


def wait(jobs: dict[Any, Work]) -> Iterator[Ended]:
    """Yield each rotation when its task has ended, and take its job out of `jobs`."""
    over: dict[Any, float] = {}
    while jobs:
        states = queue(sorted({job.job_id.partition("_")[0] for job in jobs}))
        for job, work in list(jobs.items()):
            state = GONE if states is None else states.get(job.job_id, GONE)
            if job.paths.result_pickle.exists():
                del jobs[job]
                yield outcome(job, work)
            elif states is None or state not in (*OVER, GONE):
                over.pop(job, None)
            elif time.monotonic() - over.setdefault(job, time.monotonic()) > LATE_S:
                del jobs[job]
                yield Ended(work, failure=f"its Slurm task {job.job_id} ended without a result ({state.lower()}); log: "
                                          f"{job.paths.stderr}")
        if jobs:
            time.sleep(POLL_S)


def outcome(job: Any, work: Work) -> Ended:
    """The result or the error of a task that wrote one."""
    error = job.exception()
    if error is None:
        return Ended(work, job.result())
    trace = [line for line in str(error).splitlines() if line and not line.startswith((" ", "-", "You can"))]
    return Ended(work, failure=f"{one_line(trace[-1])} (Slurm task {job.job_id}, log: {job.paths.stderr})")


def queue(arrays: Sequence[str]) -> dict[str, str] | None:
    """Task -> its state, for these arrays; Slurm lists ended tasks for minutes. None while Slurm does not answer."""
    asked = subprocess.run(["squeue", "--noheader", "--array", "--states=all", f"--jobs={','.join(arrays)}",
                            "--format=%i %T"], capture_output=True, text=True, check=False)
    if asked.returncode and "Invalid job id" not in asked.stderr:
        log.warning("waiting for Slurm: %s", one_line(asked.stderr))
        return None
    return dict(line.split() for line in asked.stdout.splitlines())
