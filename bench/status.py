"""`python -m bench.status [store.dir=DIR]`: which cells of a store are complete (conf/status.yaml)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from bench.commands.command import StoreOptions, run_yaml_command
from bench.run.console import console
from results.store.files import Holder, holders

if TYPE_CHECKING:
    from results.store.cells import Entry, Store

STATES = ("complete", "running", "failed", "open", "damaged")
"""open: begun, not finished, and without a process that works on it."""


class Status(StoreOptions):
    """conf/status.yaml, which explains every field."""

    summary: Literal["table", "json"]


@dataclass(slots=True)
class Rotation:
    """The cells of a store that are timed beside one baseline.

    name     `tiny, mini_gsm, T = 0.6`; of cells that cannot be read the first one's folder
    holder   the process that works on them, or None
    entries  of these cells
    unbegun  cells that the holder has not begun and of which the store holds nothing yet
    """

    name: str
    holder: Holder | None = None
    entries: list[Entry] = field(default_factory=list)
    unbegun: int = 0

    def state_of(self, entry: Entry) -> str:
        """The state of one of its cells."""
        if entry.damage:
            return "damaged"
        if entry.complete:
            return "complete"
        return "running" if self.holder is not None and entry.key in self.holder.cells else \
            "failed" if entry.failure else "open"

    def plain(self) -> dict[str, Any]:
        """Its line: how many cells are in each state, and what was done of what the latest runs asked for."""
        states = Counter(map(self.state_of, self.entries))
        return {"rotation": self.name, "cells": len(self.entries), **{state: states[state] for state in STATES},
                "not begun": self.unbegun, "answers": sum(entry.answered for entry in self.entries),
                "of": sum(entry.asked[0] for entry in self.entries), "timed": sum(
                    entry.timed for entry in self.entries), "of timed": sum(entry.asked[1] for entry in self.entries),
                "held by": None if self.holder is None else str(self.holder)}

    @property
    def is_done(self) -> bool:
        """Whether all cells are complete, and no process works on them."""
        return self.holder is None and all(entry.complete for entry in self.entries)


def rotations(store: Store) -> list[Rotation]:
    """The rotations of a store: running ones first, then others that are not done. Raises StoreError."""
    held = list(holders(store.root).values())
    working = {cell: holder for holder in held for cell in holder.cells}
    found: dict[tuple[str, int], Rotation] = {}
    for entry in store.entries():
        rotation = found.setdefault((entry.baseline, entry.batch), Rotation(entry.title))
        rotation.entries.append(entry)
        rotation.holder = working.get(entry.key, rotation.holder)
    known = {entry.key for rotation in found.values() for entry in rotation.entries}
    listed = list(found.values())
    for holder in held:
        own, unbegun = [one for one in listed if one.holder is holder], len(set(holder.cells) - known)
        if len(own) == 1:
            own[0].unbegun = unbegun
        elif unbegun:  # their rotation is not known yet
            listed.append(Rotation(holder.cells[0], holder, unbegun=unbegun))
    return sorted(listed, key=lambda one: (one.holder is None, one.is_done))


def run(config: Mapping[str, Any]) -> None:
    """Print the state of a store. Raises ValueError, StoreError, one line."""
    settings = Status.from_args(config)
    store = settings.opened()
    listed = rotations(store)
    if settings.summary == "json":
        print(*(json.dumps(rotation.plain()) for rotation in listed), sep="\n")
        return
    states = Counter(rotation.state_of(entry) for rotation in listed for entry in rotation.entries)
    counts = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    console().print(f"{store.root}: {states.total()} cells in {len(listed)} rotations: {counts or 'none'}",
                    highlight=False, soft_wrap=True)
    if rows := [rotation.plain() for rotation in listed if not rotation.is_done]:
        table = Table(*rows[0])
        for row in rows:
            table.add_row(*(str(value or "") for value in row.values()))
        console().print(table, highlight=False)
    for rotation in listed:
        for entry in rotation.entries:
            if (state := rotation.state_of(entry)) in ("failed", "damaged"):
                console().print(f"{state}: {entry.key}: {entry.failure or entry.damage}", highlight=False,
                                soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    return run_yaml_command("status", run, argv)


if __name__ == "__main__":
    sys.exit(main())
