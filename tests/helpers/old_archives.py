"""The committed archives of cells as the store writes them now.

    python -m tests.helpers.old_archives FOLDER STORE

unpacks the archives of a folder of results/measured into a store. The code that wrote them called
`engine=native` lab, and watched stalls of the machine while it timed."""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from results.store.cells import Store
from results.store.records import line_of

STALLS = ("wall_s", "cpu_s", "stalled", "repeated")
"""What a timed run said of stalls."""


def unpacked(archives: Path, root: Path, cells: Collection[str] | None = None) -> Store:
    """The store of the archives of a folder, written to `root`; `cells`: keys of those to unpack,
    None for all."""
    for archive in sorted(archives.glob("store*.tar.xz")):
        with tarfile.open(archive) as file:
            for member in file:
                parts = Path(member.name).parts[1:]
                if member.isfile() and parts and (cells is None or parts[0] in cells):
                    path = root.joinpath(*parts)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(file.extractfile(member).read())
    store = Store(root)
    for path in store.folders():
        cell = store.cell(path.name)
        cell.write_config(renamed(yaml.load((path / "cell.yaml").read_text(), yaml.CSafeLoader)))
        timed = path / "timed.jsonl"
        if timed.exists():
            rows = [without_stalls(json.loads(line)) for line in timed.read_text().splitlines()]
            timed.write_text("".join(line_of(cell.key, row) for row in rows))
    return store


def renamed(config: dict[str, Any]) -> dict[str, Any]:
    """What cell.yaml holds, with today's name of the engine and without schema and digest."""
    engine = {**config["engine"], "name": "native"}
    left_out = ("schema", "digest")
    return {name: value for name, value in config.items() if name not in left_out} | {
        "engine": engine
    }


def without_stalls(row: dict[str, Any]) -> dict[str, Any]:
    """A row of timed.jsonl without its digest and what it said of stalls."""
    for run in (row["own"], row["baseline"]):
        for name in STALLS if run else ():
            run.pop(name, None)
    return {name: value for name, value in row.items() if name != "digest"}


if __name__ == "__main__":
    unpacked(Path(sys.argv[1]), Path(sys.argv[2]))
