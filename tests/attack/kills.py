"""kill -9 of a random process of a run, at a random point: no sample is lost, doubled or changed, and the same command
completes the cells."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from tests.attack import warm
from tests.attack.part import Field, Trial
from tests.attack.stores import Decoded, decoded, difference, doubled, leftovers, lines, lost

KILLS, LIMIT, GONE = 200, 600.0, 120.0
"""Kills; seconds that a run, and what a kill leaves of it, may take."""
RUNS = (
    ("-m method=sps,mars_sampling n=6 decoding.temperature=1 decoding.max_new_tokens=16 quality_batch=2 workers=2", 5),
    ("method=eagle3 drafter.total=8 n=6 decoding.temperature=1 decoding.max_new_tokens=16 trace=true", 3),
    ("-m method=ar,pld task=mini_code n=4 decoding.max_new_tokens=160", 2),
)
"""Commands, and in how many of ten kills each is killed: with a batch, traced, scored in the sandbox."""
LAUNCHED = "-m method=sps task=mini_gsm,mini_chat n=3 decoding.max_new_tokens=12 timed=0 launch.parallel=2"


class Killed:
    """A command that is killed and started again until it ends by itself, and what an undisturbed run decodes."""

    def __init__(self, words: str, folder: Path, real: bool = False) -> None:
        self.words, self.folder, self.real, self.stores = words.split(), folder, real, 0
        self.undisturbed = folder / "undisturbed"
        ended = self._start(self.undisturbed).ended(LIMIT)
        if ended.status != 0:
            raise RuntimeError(f"{words}: status {ended.status} without any kill: {ended.err[-300:]}")
        self.expected: Decoded = decoded(self.undisturbed / "store")
        self.seconds = ended.seconds

    @property
    def output(self) -> Path:
        """Where the run that is killed at present writes."""
        return self.folder / f"killed-{self.stores}"

    def kill(self, field: Field, real: bool = False) -> Trial | None:
        """Start the command and kill one of its processes; None where it ended before. A finished store is compared
        with the undisturbed one, and the next run begins with an empty one."""
        before = lines(self.output / "store")
        if field.draw.random() < 0.1:
            self._turn_the_clock_back()
        running = self._start(self.output, real)
        moment = field.draw.uniform(0, 1.1 * self.seconds + 3 * real)
        running.poll(moment)
        victims = sorted(running.session(), key=lambda process: process.pid)
        victim = field.draw.choice(victims).pid if victims else None
        if victim is not None:
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        ended = running.ended(LIMIT)
        if victim is None or (victim == running.pid and ended.status == 0):
            fault = self._fault(before, ended, complete=True)
            self.stores += 1
            return Trial(f"{' '.join(self.words)}: undisturbed to its end", fault) if fault else None
        name = f"{'parent' if victim == running.pid else 'child'} killed after {moment:.2f} s of {' '.join(self.words)}"
        if ended.status is None:
            return Trial(name, f"the parent did not end within {LIMIT:g} s")
        return Trial(name, self._orphans(running) or self._fault(before, ended, complete=ended.status == 0))

    def complete(self) -> Trial:
        """Let the run that was killed last end by itself."""
        before = lines(self.output / "store")
        ended = self._start(self.output).ended(LIMIT)
        fault = self._fault(before, ended, complete=True)
        self.stores += 1
        return Trial(f"{' '.join(self.words)}: completed after the last kill", fault)

    def _turn_the_clock_back(self) -> None:
        """Make every file of the store a day newer than the clock, as they are after the clock was set back."""
        later = time.time() + 86400
        for path in self.output.rglob("*"):
            os.utime(path, (later, later), follow_symlinks=False)

    def _start(self, output: Path, real: bool = False) -> warm.Running:
        start = warm.real if real or self.real else warm.start
        return start(["bench", *self.words, "engine.threads=1", f"output.dir={output}"], self.folder / "log")

    def _orphans(self, running: warm.Running) -> str:
        until = time.monotonic() + GONE
        while (left := running.session()) and time.monotonic() < until:
            time.sleep(0.1)
        warm.end(left)
        return f"{len(left)} processes outlived it by {GONE:g} s" if left else ""

    def _fault(self, before: dict[Path, bytes], ended: warm.Ended, complete: bool) -> str:
        store = self.output / "store"
        if ended.traceback:
            return f"traceback: {ended.err.splitlines()[-1]}"
        if complete and ended.status != 0:
            return f"status {ended.status}: {' / '.join(ended.errors)[-300:]}"
        return (lost(before, lines(store)) or (doubled(store) or leftovers(store) if complete else "")
                or difference(decoded(store), self.expected, complete=complete))


def launched(field: Field) -> Iterator[Trial]:
    """One process of a command with workers is killed, a worker, a process of Ray or the command itself; then the same
    command ends by itself."""
    names = ["local", *(["ray"] if find_spec("ray") else [])]
    runs = [Killed(f"{LAUNCHED} launch={name}", field.folder / name, real=True) for name in names]
    for _ in range(10_000):
        run = field.draw.choice(runs)
        if (trial := run.kill(field)) is not None:
            yield trial
            yield run.complete()


def trials(field: Field) -> Iterator[Trial]:
    """KILLS kills, a few of them of real processes, then every store is completed."""
    runs = [(Killed(words, field.folder / str(number)), weight) for number, (words, weight) in enumerate(RUNS)]
    killed = 0
    while killed < KILLS:
        [run] = field.draw.choices([run for run, _ in runs], [weight for _, weight in runs])
        if (trial := run.kill(field, real=killed % 50 == 49)) is not None:
            killed += 1
            yield trial
    for run, _ in runs:
        yield run.complete()
