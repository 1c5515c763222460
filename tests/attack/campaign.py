"""All parts of the campaign, their table, and its page docs/attack.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from tests.attack import (
    corruption,
    determinism,
    disk,
    foreign,
    hostile,
    kills,
    models,
    races,
    refusals,
    surroundings,
    warm,
)
from tests.attack.part import Part, Tally, run
from tests.helpers.sandbox_table import machine

PAGE = warm.PROJECT / "docs" / "attack.md"
BEGIN, END = "<!-- table of the campaign: begin -->\n", "<!-- table of the campaign: end -->\n"
HEADER = ("part", "tried", "survived", "seconds", "budget", "seed")
PARTS = (
    Part("commands", "wrong commands", 400, refusals.trials),
    Part("kills", "kill -9 of a run", 390, kills.trials),
    Part("launched", "kill -9 of workers", 150, kills.launched),
    Part("races", "8 processes on one store", 120, races.trials),
    Part("disk", "full disk", 120, disk.trials, disk.missing),
    Part("corruption", "damaged store", 300, corruption.trials),
    Part("hostile", "hostile programs", 200, hostile.trials, hostile.missing),
    Part("determinism", "determinism", 420, determinism.trials),
    Part("archives", "archives to merge", 120, foreign.archives),
    Part("imports", "files to import", 120, foreign.imports),
    Part("models", "GGUF files", 90, models.trials),
    Part("kept", "kept folders", 120, surroundings.kept),
    Part("prune", "a store with the user's files", 60, surroundings.prune),
)
"""In the order of the table. The budgets are seconds; together they are 43 minutes."""
BY_NAME = {part.name: part for part in PARTS}


def attack(names: Sequence[str], seed: int, share: float, folder: Path) -> int:
    """Run the parts and print their table; write the page where all ran with their whole budget. Exit status 1 after a
    defect."""
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
    print(table(tallies, "simple"))
    if not names and share >= 1:
        write_page(tallies)
    return int(any(tally.defects for tally in tallies))


def table(tallies: Sequence[Tally], form: str) -> str:
    """A row for each part."""
    rows = [(tally.part.title, *_outcome(tally), f"{tally.seconds:.0f}", f"{tally.budget:.0f}", tally.seed)
            for tally in tallies]
    return tabulate(rows, HEADER, form, colalign=("left", *("right",) * 5), disable_numparse=True)


def write_page(tallies: Sequence[Tally]) -> None:
    """Replace the table of docs/attack.md, and the defects below it."""
    defects = [f"- {tally.part.title}: `{trial.name}`: {_quoted(trial.defect)}" for tally in tallies
               for trial in tally.defects]
    notes = [f"- {tally.part.title}: not run here: {tally.absent}." for tally in tallies if tally.absent]
    lists = ["\n".join(lines) for lines in (notes, defects) if lines]
    said = f"{sum(tally.tried for tally in tallies)} attacks, {len(defects)} defects. {machine()}"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    body = "\n\n".join([said, table(tallies, "github"), *lists])
    PAGE.write_text(f"{before}{BEGIN}{body}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def _outcome(tally: Tally) -> tuple[str, str]:
    if tally.absent:
        return "not here", ""
    return f"{tally.tried}{', then out of time' if tally.left else ''}", str(tally.survived)


def _quoted(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")[:300]
