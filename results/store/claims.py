"""Which process works on which rotation: one file for each rotation that was ever claimed in a store.

    <root>/rotations/<rotation>.json    its latest holder: {"host", "process", "since", "cells"}

The file is locked while its holder runs (`results.store.locks`), so a claim ends with its process. An unlocked file
with content names a holder that was killed; after a normal end the file is empty."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from results.store.locks import held, is_held

FOLDER = "rotations"


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that works on a rotation.

    host     the machine's name
    process  its id there
    since    when it took the rotation, ISO 8601 in UTC
    cells    names of the rotation's cells that it completes
    """

    host: str
    process: int
    since: str
    cells: tuple[str, ...]

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} since {self.since}"


_HOLDER = TypeAdapter(Holder)


@contextmanager
def rotation_held(root: Path, rotation: str, cells: Sequence[str], *, wait: bool = False) -> Iterator[None]:
    """Hold a rotation of the store `root`, of which `cells` are to be completed. Raises Locked, naming the process that
    holds it; with `wait`, waits until that process ends. Raises StoreError for a store that cannot be locked."""
    path = root / FOLDER / f"{rotation}.json"
    holder = Holder(socket.gethostname(), os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"), tuple(cells))
    what = f"the rotation of {cells[0]}" + (f" and {len(cells) - 1} more cells" if len(cells) > 1 else "")
    with held(path, json.dumps(asdict(holder)), what, wait=wait, name=_name):
        yield


def holders(root: Path) -> dict[str, Holder]:
    """Rotation -> the process that works on it now. Raises StoreError for a store that cannot be locked."""
    found = {}
    for path in sorted((root / FOLDER).glob("*.json")):
        holder = _read(path.read_text(encoding="utf-8"))
        if holder is not None and is_held(path):
            found[path.stem] = holder
    return found


def _read(text: str) -> Holder | None:
    try:
        return _HOLDER.validate_json(text)
    except ValidationError:  # empty: its holder ended; truncated: its holder is writing it
        return None


def _name(text: str) -> str:
    return str(_read(text) or "")
