"""Stalls of the machine in the timed pass: what was timed while the machine kept the process waiting is timed again.

Of a dozen timed prompts a single one that the machine stalls decides the speed. On a CPU, decoding waits for nothing:
at every moment at least one thread runs. The CPU time of all threads is then at least the wall time, and a method whose
threads are busy together uses its own multiple of it, run after run. A run that uses less was stalled: by another
program, a full memory, a paused virtual machine. It is judged by this alone, never by how long it took, so that timing
it again favours neither the method nor the baseline.

On an accelerator the process waits for the device, spinning or asleep: its CPU time says nothing, is not recorded, and
no run is judged."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

MOST_IDLE = 0.1
"""Share of a run's usual CPU time that may be missing. One such stall among 12 prompts moves a speed by 1%."""
REPEATS = 2
"""How often a run is timed again at most."""
SHARE = 0.25
"""Runs of a rotation that are timed again at most, as a share of all. A machine that stalls more of them is not free to
measure on, which a footnote then says."""
Result = TypeVar("Result")


class Reading(NamedTuple):
    """Two clocks, in seconds.

    wall_s  the wall clock.
    cpu_s   CPU time of all threads of this process.
    """

    wall_s: float
    cpu_s: float


def read() -> Reading:
    """Both clocks now."""
    return Reading(time.perf_counter(), time.process_time())


class Spent(NamedTuple):
    """Seconds of one run by both clocks; `cpu_s` is None where runs are not judged."""

    wall_s: float
    cpu_s: float | None

    @property
    def busy(self) -> float:
        """CPU time over wall time: how many threads ran on average; 1 where that is unknown."""
        return 1.0 if self.cpu_s is None or self.wall_s <= 0 else self.cpu_s / self.wall_s


@dataclass(frozen=True, slots=True)
class Attempt(Generic[Result]):
    """One timed run: what it returned, the seconds it took, and whether the machine stalled it."""

    result: Result
    spent: Spent
    stalled: bool


class StallWatch:
    """Times runs, and times those again that the machine stalled.

    Usual for a method is the median of its runs so far, CPU time over wall time, but at least 1."""

    def __init__(self, runs: int, judges: bool, clock: Callable[[], Reading] = read) -> None:
        """`runs`: how many runs are to be timed; `judges`: whether CPU time means anything."""
        self._left, self._judges, self._clock = max(REPEATS, int(SHARE * runs)), judges, clock
        self._busy: dict[str, list[float]] = defaultdict(list)

    def attempts(self, name: str, run: Callable[[], Result]) -> list[Attempt[Result]]:
        """Every attempt at a run of the method `name`, the one that counts last: the first without a stall; the least
        stalled where all have one."""
        made = [self._attempt(name, run)]
        while made[-1].stalled and len(made) <= REPEATS and self._left > 0:
            self._left -= 1
            made.append(self._attempt(name, run))
        self._busy[name] += [one.spent.busy for one in made if not one.stalled]
        return sorted(made, key=lambda one: (not one.stalled, one.spent.busy))

    def _attempt(self, name: str, run: Callable[[], Result]) -> Attempt[Result]:
        before = self._clock()
        result = run()
        after = self._clock()
        spent = Spent(after.wall_s - before.wall_s, after.cpu_s - before.cpu_s if self._judges else None)
        usual = max(1.0, statistics.median(self._busy[name] or [1.0]))
        return Attempt(result, spent, self._judges and spent.busy < (1 - MOST_IDLE) * usual)
