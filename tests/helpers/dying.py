"""Processes that die of kill -9 as soon as a command has stored so many samples."""

from __future__ import annotations

import os
import signal
from itertools import count

from bench.run import jobs, launch
from results.store.cells import CellFolder


def after(samples, act):
    """Call `act` when this process has stored so many samples."""
    append, stored = CellFolder.append, count(1)

    def counted(folder, record):
        append(folder, record)
        if next(stored) == samples:
            act()

    CellFolder.append = counted


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def _dies_once(work):
    """Let this process die after two samples; the one that goes on with the rotation lives."""
    try:
        (work.store.parent / "died").touch(exist_ok=False)
    except FileExistsError:
        return
    after(2, die)


def worker():
    """As that of `launch=local`; but one dies after two samples of mini_gsm, and each dies of
    mini_chat."""
    complete = launch.worker()

    def dying(work):
        if work.cells[0].task.name == "mini_chat":
            die()
        _dies_once(work)
        return complete(work)

    return dying


def worker_of_the_quality_pass():
    """One that dies of the second prompt."""
    decode = jobs.loaded_worker()
    return lambda job: (
        os._exit(9) if any(one.id.endswith("-00001") for one in job.prompts) else decode(job)
    )


def worker_that_kills_its_starter(died):
    """One that kills the process that started it with the first answers, once."""
    decode = jobs.loaded_worker()

    def dying(job):
        done = decode(job)
        if job.prompts and not died.exists():
            died.touch()
            os.kill(os.getppid(), signal.SIGKILL)
        return done

    return dying


def work_of_ray(work):
    """As that of `launch=ray`."""
    _dies_once(work)
    return launch.work_of_ray(work)
