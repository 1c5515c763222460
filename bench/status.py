"""`python -m bench.status [store.dir=DIR]`: which cells of a store are complete
(conf/status.yaml)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from bench.commands.command import StoreOptions, run_yaml_command
from bench.run.console import console, counted

if TYPE_CHECKING:
    from results.store.cells import Entry, Store
    from results.store.files import Holder

STATES = ("complete", "running", "failed", "open", "damaged", "not begun")
"""open: begun, not finished, and without a process that works on it; not begun: claimed by a
process that has not started it."""


class Status(StoreOptions):
    """conf/status.yaml, which explains every field."""

    summary: Literal["table", "json"]


@dataclass(slots=True)
class Group:
    """The cells of a store that are timed beside one baseline, each with its state.

    name     `tiny, mini_gsm, T = 0.6`; of cells that cannot be read the first one's folder
    cells    what a look at each tells, and its state
    holder   the process that works on them, or None
    """

    name: str
    cells: list[tuple[Entry, str]] = field(default_factory=list)
    holder: Holder | None = None

    def plain(self) -> dict[str, Any]:
        """Its line: how many cells are in each state, and what was done of what the latest runs
        asked for."""
        states, entries = (
            Counter(state for _, state in self.cells),
            [entry for entry, _ in self.cells],
        )
        return {
            "group": self.name,
            "cells": len(entries),
            **{state: states[state] for state in STATES},
            "answers": sum(entry.answered for entry in entries),
            "of": sum(entry.asked[0] for entry in entries),
            "timed": sum(entry.timed for entry in entries),
            "of timed": sum(entry.asked[1] for entry in entries),
            "held by": None if self.holder is None else str(self.holder),
        }

    @property
    def is_done(self) -> bool:
        """Whether all cells are complete."""
        return all(entry.complete for entry, _ in self.cells)


def groups(store: Store) -> list[Group]:
    """The groups of a store: running ones first, then others that are not done. Raises
    StoreError."""
    found: dict[object, Group] = {}
    for folder in map(store.cell, (path.name for path in store.folders())):
        entry, is_begun = folder.entry(), (folder.path / "cell.yaml").exists()
        holder = None if entry.complete else folder.holder()
        if holder is None and not is_begun:
            continue  # no cell
        state = (
            "damaged"
            if entry.damage
            else "complete"
            if entry.complete
            else "not begun"
            if not is_begun
            else "running"
            if holder
            else "failed"
            if entry.failure
            else "open"
        )
        of = (
            (entry.baseline, entry.batch)
            if is_begun or holder is None
            else (holder.host, holder.process)
        )
        group = found.setdefault(of, Group(entry.title if is_begun else "not begun"))
        group.cells.append((entry, state))
        group.holder = group.holder or holder
    return sorted(found.values(), key=lambda group: (group.holder is None, group.is_done))


def run(config: Mapping[str, Any]) -> None:
    """Print the state of a store. Raises ValueError, StoreError, one line."""
    settings = Status.from_args(config)
    store = settings.opened()
    listed = groups(store)
    if settings.summary == "json":
        print(*(json.dumps(group.plain()) for group in listed), sep="\n")
        return
    cells = [cell for group in listed for cell in group.cells]
    states = Counter(state for _, state in cells)
    counts = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    console().print(
        f"{store.root}: {counted(len(cells), 'cell')} in {counted(len(listed), 'group')}: "
        f"{counts or 'none'}",
        highlight=False,
        soft_wrap=True,
    )
    if rows := [group.plain() for group in listed if not group.is_done]:
        shown = [
            name for name in rows[0] if any(row[name] for row in rows)
        ]  # empty columns would fill the line
        table = Table(*shown)
        for row in rows:
            table.add_row(*(str(row[name] or "") for name in shown))
        console().print(table, highlight=False)
    for entry, state in cells:
        if state in ("failed", "damaged"):
            console().print(
                f"{state}: {entry.key}: {entry.failure or entry.damage}",
                highlight=False,
                soft_wrap=True,
            )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    return run_yaml_command("status", run, argv)


if __name__ == "__main__":
    sys.exit(main())
