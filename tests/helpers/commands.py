"""`python -m …` in this process or in a forked one, by the `main` of its module."""

from __future__ import annotations

import os
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess

from bench.run.pool import PRELOADED


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command left behind: exit status, standard output, error stream."""

    status: int | str | None
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines of the error stream that are no warning."""
        return [line for line in self.err.splitlines() if not line.startswith("WARNING: ")]


def run(module: str, *words: object) -> Ended:
    """Run `python -m MODULE WORDS`; what it raises is a defect and comes through."""
    sys.argv[1:] = given = [str(word) for word in words]
    name = module if module.startswith("bench.") else f"{module}.__main__"
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            status = import_module(name).main(given)
        except SystemExit as ended:
            status = ended.code
    return Ended(status, out.getvalue(), err.getvalue())


def started(*words: object, dies_after: int = 0, dies_waiting: float = 0) -> ForkServerProcess:
    """Start `python -m WORDS` in a process whose parent has imported transformers; its exit code is
    the command's status. `dies_after`: kill -9 when so many samples are stored; `dies_waiting`:
    when it sleeps so many seconds."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(
        target=_child, args=(dict(os.environ), words, dies_after, dies_waiting)
    )
    process.start()
    return process


def _child(environment, words, dies_after, dies_waiting):
    from tests.helpers import dying

    os.environ.update(environment)
    if dies_after:
        dying.after(dies_after, dying.die)
    if dies_waiting:
        time.sleep = lambda seconds: dying.die() if seconds == dies_waiting else None
    sys.exit(run(*map(str, words)).status)
