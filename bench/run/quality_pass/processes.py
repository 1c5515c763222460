"""The processes of the quality pass. Each decodes one job after the other on models that it keeps loaded.

Workers only compute: this process hands out the jobs and stores the results. A worker that dies is replaced, and its
prompts are decoded again; when this process dies, its workers end."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing import connection as pipes
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING

import torch

from bench.run.engine import Engine, Engines
from bench.run.quality_pass.worker import Done, Job, JobRunner
from methods.engine.clock import DEFAULT_THREADS
from results.store.reasons import log_to_stderr
from results.store.sample import FailedSample

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

log = logging.getLogger(__name__)
NextJob = Callable[[], Job | None]
Take = Callable[[Job, Done], None]
PRELOADED = ["bench.run.quality_pass.processes", "transformers.generation", "methods.engine.loading"]
"""Imported once, before the workers are forked from the server: they start in a moment and share the code's memory."""
MOST_DEATHS = 3
"""A prompt on which so many workers died has failed."""
JOBS_EACH = 2
"""Without as many jobs for it, a worker takes longer to start than it saves."""


def worker_count(asked: int | None, devices: set[str], jobs: int) -> int:
    """How many processes decode so many jobs: `asked`, or one for each core (as PyTorch counts them, so that
    OMP_NUM_THREADS limits it) or GPU; never more than there are jobs."""
    if asked is not None:
        return max(1, min(asked, jobs))
    if devices == {"cuda"}:
        return max(1, min(torch.cuda.device_count(), jobs))
    return max(1, min(DEFAULT_THREADS, jobs // JOBS_EACH)) if devices == {"cpu"} else 1


def run_jobs(count: int, engine: Engine, next_job: NextJob, take: Take) -> None:
    """Do all jobs: take them from `next_job` until that gives None while no job is under way, and give each result to
    `take`. One worker is this process itself, with the models that `engine` has loaded."""
    if count > 1:
        Workers(count).run(next_job, take)
        return
    torch.set_num_threads(DEFAULT_THREADS)
    runner = JobRunner(engine)
    while (job := next_job()) is not None:
        take(job, runner.run(job))


MOST_STARTS, PAUSE_S = 300, 0.1
"""Attempts to start a worker, and the seconds between two of them."""


@dataclass(slots=True)
class Worker:
    """One process; `job` is what it decodes now."""

    number: int
    process: BaseProcess
    connection: Connection
    job: Job | None = None


class Workers:
    """So many processes, which share the cores."""

    def __init__(self, count: int) -> None:
        self._context = get_context("forkserver")  # of a process without threads, CUDA or locks of the store
        self._context.set_forkserver_preload(PRELOADED)
        self._count = count
        self._workers: list[Worker] = []
        self._again: deque[Job] = deque()
        self._deaths: Counter[tuple[str, str]] = Counter()

    def run(self, next_job: NextJob, take: Take) -> None:
        """As `run_jobs`."""
        try:
            self._workers = [self._start(number) for number in range(self._count)]
            while self._hand_out(next_job, take):
                busy = [worker for worker in self._workers if worker.job is not None]
                ready = pipes.wait([worker.connection for worker in busy])
                for worker in busy:
                    if worker.connection not in ready:
                        continue
                    try:
                        done = worker.connection.recv()
                    except (EOFError, OSError):
                        self._replace(worker, take)
                        continue
                    job, worker.job = worker.job, None
                    if job is not None:
                        take(job, done)
        finally:
            self._stop()

    def _hand_out(self, next_job: NextJob, take: Take) -> bool:
        """Give every idle worker a job. Whether a job is under way."""
        for place in range(self._count):
            if self._workers[place].job is None:
                job = self._again.popleft() if self._again else next_job()
                if job is None:
                    break
                worker = self._workers[place]
                worker.job = job
                try:
                    worker.connection.send(job)
                except OSError:
                    self._replace(worker, take)
        return any(worker.job is not None for worker in self._workers) or bool(self._again)

    def _start(self, number: int) -> Worker:
        threads = max(1, DEFAULT_THREADS // self._count)
        for attempt in count(1):
            own, other = self._context.Pipe()
            process = self._context.Process(target=work, args=(other, number, threads), name=f"worker {number + 1}")
            try:
                process.start()
                break
            except (EOFError, OSError):  # the process that forks the workers was killed: once it has gone, a start
                own.close()              # brings it back
                if attempt == MOST_STARTS:
                    raise
                time.sleep(PAUSE_S)
            finally:
                other.close()
        return Worker(number, process, own)

    def _replace(self, dead: Worker, take: Take) -> None:
        """Start another worker; the dead one's prompts are open again, one by one after a second death."""
        dead.connection.close()
        dead.process.join()
        self._workers[dead.number] = self._start(dead.number)
        job, code = dead.job, dead.process.exitcode or 0
        if job is None:
            return
        cause = f"signal {-code}" if code < 0 else f"exit status {code}"
        if not job.prompts:  # whether its models can be loaded, its prompts will show
            unchecked = f"worker died ({cause}) while it checked the prompts of earlier samples: run the command again"
            take(job, Done(failure=unchecked if job.answered else None))
            return
        log.warning("worker %d (process %d) died, %s: decoding its %d prompts of %s again", dead.number + 1,
                    dead.process.pid, cause, len(job.prompts), job.cell.name)
        keys = {prompt.id: (job.cell.name, prompt.id) for prompt in job.prompts}
        self._deaths.update(keys.values())
        lost = [prompt for prompt in job.prompts if self._deaths[keys[prompt.id]] >= MOST_DEATHS]
        again = tuple(prompt for prompt in job.prompts if prompt not in lost)
        if lost:
            reason = f"{MOST_DEATHS} workers died while they decoded it (the last: {cause}); is there enough memory?"
            take(replace(job, prompts=tuple(lost)), Done([FailedSample(prompt.id, reason) for prompt in lost]))
        if any(self._deaths[keys[prompt.id]] > 1 for prompt in again):
            self._again.extend(replace(job, prompts=(prompt,)) for prompt in again)
        elif again:
            self._again.append(replace(job, prompts=again))

    def _stop(self) -> None:
        """End all workers: those that wait for a job by themselves, the others at once."""
        for worker in self._workers:
            if worker.job is not None:
                worker.process.kill()
            worker.connection.close()
        for worker in self._workers:
            worker.process.join()


def work(connection: Connection, number: int, threads: int) -> None:
    """A worker: decode jobs until the other end of the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    log_to_stderr()
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    runner = JobRunner(Engines(remember=True))
    while True:
        try:
            job: Job = connection.recv()
        except EOFError:
            return
        connection.send(runner.run(_on_device(job, number)))


def end_with_parent() -> None:
    """Wait until the parent has ended, and then end this process at once."""
    parent = parent_process()
    if parent is not None:
        pipes.wait([parent.sentinel])
        os._exit(1)


def _on_device(job: Job, number: int) -> Job:
    """The job on the worker's own GPU where there are several; the tokens are the same on each."""
    engine = job.cell.engine
    if engine.device != "cuda" or torch.cuda.device_count() < 2:
        return job
    own = f"cuda:{number % torch.cuda.device_count()}"
    return replace(job, cell=job.cell.replace(engine=engine.model_copy(update={"device": own})))
