"""Stalls of the machine in the timed pass: a run during which the machine kept the process waiting is timed again.

Among a dozen timed prompts a single stalled one can decide the speed. On a CPU, decoding never waits: at least one
thread runs at every moment. The CPU time of all threads is therefore at least the wall time, and for each method a
nearly constant multiple of it. A run with a smaller multiple was stalled: by another program, by swapping, by a paused
virtual machine. Only this ratio decides, never how long the run took, so that timing it again favours neither the
method nor the baseline.

On an accelerator the process waits for the device, spinning or asleep. Its CPU time then shows no stalls: it is not
recorded, and no run is timed again."""

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
"""Most repeats of one run."""
SHARE = 0.25
"""Most repeats in a rotation, as a share of its runs. If the machine stalls more of them, it is not free for
measurements, and a footnote says so."""
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
    """Times runs, and repeats those that the machine stalled.

    The usual value of a method is the median of CPU time over wall time of its runs so far, but at least 1."""

    def __init__(self, runs: int, judges: bool, clock: Callable[[], Reading] = read) -> None:
        """`runs`: how many runs are to be timed; `judges`: whether CPU time means anything."""
        self._left, self._judges, self._clock = max(REPEATS, int(SHARE * runs)), judges, clock
        self._busy: dict[str, list[float]] = defaultdict(list)

    def attempts(self, name: str, run: Callable[[], Result]) -> list[Attempt[Result]]:
        """Every attempt at a run of the method `name`. The last one counts: the attempt without a stall, or else the
        least stalled one."""
        made = [self._attempt(name, run)]
        while made[-1].stalled and len(made) <= REPEATS and self._left > 0:
            self._left -= 1
            made.append(self._attempt(name, run))
        self._busy[name] += [attempt.spent.busy for attempt in made if not attempt.stalled]
        return sorted(made, key=lambda attempt: (not attempt.stalled, attempt.spent.busy))

    def _attempt(self, name: str, run: Callable[[], Result]) -> Attempt[Result]:
        before = self._clock()
        result = run()
        after = self._clock()
        spent = Spent(after.wall_s - before.wall_s, after.cpu_s - before.cpu_s if self._judges else None)
        usual = max(1.0, statistics.median(self._busy[name] or [1.0]))
        return Attempt(result, spent, self._judges and spent.busy < (1 - MOST_IDLE) * usual)
