"""What of a store no command reads any more: listed with the reason, then removed, and nothing but what was listed."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.store.cells import Store
from results.store.errors import StoreError
from results.store.files import leftovers, writing
from results.store.index import stamp


@dataclass(frozen=True, slots=True)
class Orphan:
    """A cell or a folder to remove.

    path    in the store's folder
    reason  why no command reads it, in one line
    stamp   the state of its files when it was listed; empty for what is no cell
    """

    path: Path
    reason: str
    stamp: bytes = b""


def orphans(store: Store, is_stale: Callable[[Mapping[str, Any]], str]) -> list[Orphan]:
    """The cells that `is_stale` gives a reason for (their configuration -> why no command reads them, empty for all
    others), folders in which nothing was written, and what killed processes of this machine left. A cell that cannot
    be read is none: its files say what is wrong."""
    if not store.root.is_dir():
        return []
    cells = {cell.key: stamp(cell) for cell in store.cells()}
    configs = {content.entry.key: content.config for content in store.contents(cells, summaries=False)}
    listed = [Orphan(store.root / key, reason, cells[key])
              for key, config in configs.items() if config and (reason := is_stale(config))]
    empty = [path for path in store.folders() if not any(file.name[0] != "." for file in path.iterdir())]
    listed += [Orphan(path, "nothing was written", stamp(store.cell(path.name))) for path in empty]
    return listed + [Orphan(path, "left by a process that was killed") for path in leftovers(store.root)]


def remove(orphan: Orphan, store: Store) -> None:
    """Remove what was listed; a kill leaves it as a whole or not at all. Raises StoreError where it was changed since
    or is being written."""
    if not orphan.stamp:
        shutil.rmtree(orphan.path) if orphan.path.is_dir() else orphan.path.unlink()
        return
    cell = store.cell(orphan.path.name)
    with cell.lock():
        if stamp(cell) != orphan.stamp:
            raise StoreError(f"{orphan.path}: changed since it was listed: list it again")
        aside = orphan.path.with_name(f".{orphan.path.name}.{socket.gethostname()}.{os.getpid()}")
        with writing(orphan.path):
            orphan.path.rename(aside)
            shutil.rmtree(aside)
