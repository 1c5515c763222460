"""All parts of the campaign, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from tests.attack import (
    corruption,
    disk,
    foreign,
    hostile,
    kills,
    models,
    races,
    surroundings,
    warm,
)
from tests.attack.part import Part, Tally, run

HEADER = ("part", "tried", "survived", "seconds", "budget", "seed")
PARTS = (
    Part("kills", "kill -9 of a run", 390, kills.trials),
    Part("launched", "kill -9 of workers", 150, kills.launched),
    Part("races", "8 processes on one store", 120, races.trials),
    Part("disk", "full disk", 120, disk.trials, disk.missing),
    Part("corruption", "damaged store", 300, corruption.trials),
    Part("hostile", "hostile programs", 200, hostile.trials, hostile.missing),
    Part("archives", "archives to merge", 120, foreign.archives),
    Part("imports", "files to import", 120, foreign.imports),
    Part("models", "GGUF files", 90, models.trials),
    Part("kept", "kept folders", 120, surroundings.kept),
    Part("prune", "a store with the user's files", 60, surroundings.prune),
)
"""In the order of the table. The budgets are seconds; together they are 29 minutes."""
BY_NAME = {part.name: part for part in PARTS}


def attack(names: Sequence[str], seed: int, share: float, folder: Path) -> int:
    """Run the parts and print their table, as docs/attack.md has it. Exit status 1 after a defect."""
    if unknown := [name for name in names if name not in BY_NAME]:
        raise ValueError(f"{unknown[0]}: no such part; take {', '.join(BY_NAME)}")
    parts = [BY_NAME[name] for name in names] or list(PARTS)
    warm.warm_up()
    tallies = []
    for part in parts:
        budget = part.budget * share
        print(f"{part.title}: seed {seed}, at most {budget:.0f} s", flush=True)
        tallies.append(run(part, seed, budget, folder / part.name, lambda line: print(f"  {line}", flush=True)))
        print(f"  {', '.join(_outcome(tallies[-1]))} of these survived, {tallies[-1].seconds:.0f} s", flush=True)
    print(table(tallies))
    return int(any(tally.defects for tally in tallies))


def table(tallies: Sequence[Tally]) -> str:
    """A row for each part."""
    rows = [(tally.part.title, *_outcome(tally), f"{tally.seconds:.0f}", f"{tally.budget:.0f}", tally.seed)
            for tally in tallies]
    return tabulate(rows, HEADER, "github", colalign=("left", *("right",) * 5), disable_numparse=True)


def _outcome(tally: Tally) -> tuple[str, str]:
    if tally.absent:
        return "not here", ""
    return f"{tally.tried}{', then out of time' if tally.left else ''}", str(tally.survived)
