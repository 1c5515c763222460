"""`python -m bench.status [store.dir=DIR]`: which cells of a store are complete (conf/status.yaml)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table

from bench.commands.command import StoreOptions, run_yaml_command
from results.store.status import STATES, RotationState, rotations

if TYPE_CHECKING:
    from results.store.cells import Store

COLUMNS = ("rotation", "cells", *STATES, "not begun", "answers", "timed", "held by", "time left")
WIDTH = 170
"""Characters of a line where the output is no terminal."""


class Status(StoreOptions):
    """conf/status.yaml, which explains every field."""

    summary: Literal["table", "json"]


def run(config: Mapping[str, Any]) -> None:
    """Print the state of a store. Raises ValueError, StoreError, one line."""
    settings = Status.from_args(config)
    store = settings.opened()
    listed = rotations(store, datetime.now(UTC))
    if settings.summary == "json":
        for rotation in listed:
            print(json.dumps(plain(rotation, store)))
        return
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    states = Counter(state for rotation in listed for state in rotation.states)
    counts = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    console.print(f"{store.root}: {sum(states.values())} cells in {len(listed)} rotations: {counts or 'none'}",
                  highlight=False, markup=False, soft_wrap=True)
    if remaining := [rotation for rotation in listed if not rotation.is_done]:
        console.print(table(remaining, store), highlight=False)
    for rotation in listed:
        for entry, state in zip(rotation.entries, rotation.states, strict=True):
            if state in ("failed", "damaged"):
                console.print(f"{state}: {entry.key}: {entry.failure or entry.damage}", highlight=False, markup=False,
                              soft_wrap=True)


def table(listed: Sequence[RotationState], store: Store) -> Table:
    """A line for each rotation that is not done."""
    shown = Table()
    for name in COLUMNS:
        shown.add_column(name, justify="left" if name in ("rotation", "held by", "time left") else "right")
    for rotation in listed:
        states, row = Counter(rotation.states), plain(rotation, store)
        counts = (str(states[state] or "") for state in STATES)
        shown.add_row(row["rotation"], str(len(rotation.entries) or ""), *counts, str(rotation.unbegun or ""),
                      str(row["answers"]), str(row["timed"]), row["held by"] or "", span(rotation))
    return shown


def plain(rotation: RotationState, store: Store) -> dict[str, Any]:
    """The JSON object of a rotation."""
    return {"rotation": name_of(rotation, store), "cells": len(rotation.entries), **Counter(rotation.states),
            "not begun": rotation.unbegun, "answers": sum(entry.answered for entry in rotation.entries),
            "timed": sum(entry.timed for entry in rotation.entries),
            "held by": None if rotation.holder is None else str(rotation.holder),
            "seconds left": rotation.seconds, "without the timed pass": rotation.partly}


def name_of(rotation: RotationState, store: Store) -> str:
    """`tiny, mini_gsm, T = 0.6`, from the configuration of its first cell that can be read."""
    for entry in rotation.entries:
        if entry.damage:
            continue
        config = store.cell(entry.key).config() or {}
        parts = [config.get("pair", {}).get("name"), config.get("task", {}).get("name"),
                 f"T = {config.get('decoding', {}).get('temperature', 0):g}"]
        batch = f", batches of {rotation.entries[0].batch}" if rotation.entries[0].batch > 1 else ""
        return ", ".join(map(str, parts)) + batch
    return rotation.holder.cells[0] if rotation.holder is not None else rotation.entries[0].key


def span(rotation: RotationState) -> str:
    """`3 h 20 min`; ≥ while the timed pass cannot be estimated; – before the first answer; empty without a holder."""
    if rotation.holder is None:
        return ""
    if rotation.seconds is None:
        return "–"
    minutes = max(1, round(rotation.seconds / 60))
    return f"{'≥ ' * rotation.partly}{f'{minutes // 60} h ' * (minutes >= 60)}{minutes % 60} min"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    return run_yaml_command("status", run, argv)


if __name__ == "__main__":
    sys.exit(main())
