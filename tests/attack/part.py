"""A part of the campaign: what it tries one by one, within a budget of seconds, and what came of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Trial:
    """One attempt. `defect`: what went wrong, in one line; empty where it was survived."""

    name: str
    defect: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """Where a part works.

    folder  of its files, removed afterwards.
    draw    its random numbers.
    """

    folder: Path
    draw: random.Random


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of attack.

    name     as on the command line.
    title    as in the table.
    budget   seconds, after which no further trial starts.
    trials   makes the attempts.
    missing  why this machine cannot run the part; empty where it can.
    """

    name: str
    title: str
    budget: float
    trials: Callable[[Field], Iterator[Trial]]
    missing: Callable[[], str] = lambda: ""


@dataclass(slots=True)
class Tally:
    """What came of a part. `left`: the budget ended before the last trial; `absent`: why it could not be run."""

    part: Part
    seed: int
    budget: float
    tried: int = 0
    seconds: float = 0.0
    left: bool = False
    absent: str = ""
    defects: list[Trial] = field(default_factory=list)

    @property
    def survived(self) -> int:
        return self.tried - len(self.defects)


def run(part: Part, seed: int, budget: float, folder: Path, say: Callable[[str], None]) -> Tally:
    """Make the trials of a part until they or its budget end. An error of the part itself counts as a defect."""
    tally = Tally(part, seed, budget, absent=part.missing())
    if tally.absent:
        return tally
    began = time.monotonic()
    folder.mkdir(parents=True)
    try:
        for trial in part.trials(Field(folder, random.Random(f"{part.name}/{seed}"))):
            tally.tried += 1
            if trial.defect:
                tally.defects.append(trial)
                say(f"defect: {trial.name}: {trial.defect}")
            if time.monotonic() - began > budget:
                tally.left = True
                break
    except Exception as error:  # the other parts still run; the table names it
        tally.tried += 1
        tally.defects.append(Trial("the part itself", f"{type(error).__name__}: {' '.join(str(error).split())}"))
        say(f"defect: {tally.defects[-1].defect}")
    tally.seconds = time.monotonic() - began
    return tally
