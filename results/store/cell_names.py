"""The names of the files that this project writes into a cell's folder: nothing else is copied or removed with it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""The name of a cell's folder."""
RECORDS = ("profile", "agreement", "coverage")
"""Further measurements of a cell (`CellFolder.write_record`)."""
FILES = frozenset({"cell.yaml", "environment.json", "samples.jsonl", "timed.jsonl", "summary.json", "failure.json",
                   "verdicts.jsonl", *(f"{name}.json" for name in RECORDS)})
TRACE = "trace"
_TRACE_FILE = re.compile(r"\d{5,}\.parquet|failure\.json")


def is_known(parts: tuple[str, ...]) -> bool:
    """Whether a path below a cell's folder, in its parts, is of a file that this project writes."""
    if len(parts) == 1:
        return parts[0] in FILES
    return len(parts) == 2 and parts[0] == TRACE and bool(_TRACE_FILE.fullmatch(parts[1]))


def files_of(cell: Path) -> tuple[list[Path], list[Path]]:
    """The files of a cell's folder that this project writes, and the other ones, links among them, both relative to the
    folder; hidden names are in neither. Links are not followed."""
    known: list[Path] = []
    others: list[Path] = []
    for entry in _below(cell):
        path = Path(entry.path).relative_to(cell)
        (known if entry.is_file(follow_symlinks=False) and is_known(path.parts) else others).append(path)
    return sorted(known), sorted(others)


def _below(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below a folder but folders and hidden names."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path))
            else:
                yield entry
