"""What came of a command, read back from the store: a table, a line for each failure, the exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from bench.cell import Cell
from bench.settings import Settings
from results.store import CellFolder, Store, StoreError

WIDE = 150


def console() -> Console:
    """The standard output; where it is no terminal, wide enough for whole rows."""
    return Console(width=None if sys.stdout.isatty() else WIDE)


def conclude(cells: Sequence[Cell], labels: Sequence[str], settings: Settings) -> int:
    """Print the closing table, the failures and, if wanted, the summaries. Exit status: 0 when every cell is whole."""
    store = Store(settings.store.dir)
    folders = [store.cell(cell.name) for cell in cells]
    problems = {folder.key: problem for folder in folders if (problem := trouble(folder))}
    table = Table("point", "τ", "speedup", "accuracy", "tokens/s", "n", title=f"results in {store.root}", title_justify="left")
    for folder, label in zip(folders, labels, strict=True):
        table.add_row(label, *_figures(folder.summary()))
    console().print(table)
    for key, problem in problems.items():
        print(f"failed: {key}: {problem}", file=sys.stderr)
    if settings.summary == "json":
        for folder in folders:
            found = folder.summary()
            print(json.dumps({"cell": folder.key, "error": problems.get(folder.key)} if found is None else found))
    return 1 if problems else 0


def trouble(folder: CellFolder) -> str | None:
    """Why a cell is not whole, in one line; None when it is."""
    if reason := folder.failure():
        return reason
    summary = folder.summary()
    if summary is None:
        try:
            with folder.lock():
                return "was not finished"
        except StoreError as error:
            return str(error)
    if not summary["failed"]:
        return None
    first = next(sample for sample in folder.samples() if "error" in sample)
    return (f"{summary['failed']} of {summary['failed'] + summary['n']} prompts failed; first {first['id']}: "
            f"{first['error']}")


def show_plan(cells: Sequence[Cell], labels: Sequence[str], settings: Settings) -> None:
    """What a dry run prints: one point in full, or a table of many, with what the store already holds."""
    store = Store(settings.store.dir)
    if len(cells) == 1:
        print(yaml.safe_dump(cells[0].record(), sort_keys=False, allow_unicode=True), end="")
    table = Table("point", "folder", "in the store", title=f"would run in {store.root}", title_justify="left")
    for cell, label in zip(cells, labels, strict=True):
        table.add_row(label, cell.name, _state(store.cell(cell.name)))
    console().print(table)


def labels_of(points: Sequence[Sequence[str]], cells: Sequence[Cell]) -> list[str]:
    """Name each point by the overrides in which they differ; a single one by its method and task."""
    common = set(points[0]).intersection(*points)
    varying = [" ".join(line for line in overrides if line not in common) for overrides in points]
    return [own or f"{cell.label} {cell.task.name}" for own, cell in zip(varying, cells, strict=True)]


def _state(folder: CellFolder) -> str:
    if folder.summary() is not None and trouble(folder) is None:
        return "complete"
    done = sum("error" not in sample for sample in folder.samples())
    return f"{done} prompts done" if done else "nothing"


def _figures(summary: dict[str, Any] | None) -> list[str]:
    if summary is None:
        return ["—"] * 5
    return [_number(summary["tau"], ".2f"), _number(summary["speedup"], ".2f", "×", summary["speedup_ci95"]),
            _number(summary["accuracy"], ".1%", "", summary["accuracy_ci95"]), _number(summary["tokens_per_s"], ".1f"),
            f"{summary['n']}" + (f" ({summary['failed']} failed)" if summary["failed"] else "")]


def _number(value: float | None, form: str, unit: str = "", interval: Sequence[float] | None = None) -> str:
    if value is None:
        return "—"
    around = f" [{interval[0]:{form}}, {interval[1]:{form}}]" if interval else ""
    return f"{value:{form}}{unit}{around}"
