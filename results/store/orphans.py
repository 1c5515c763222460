"""What no command reads any longer in a store: listed with the reason; only what was listed is removed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.store.cell_files import is_known
from results.store.cells import CellFolder, Store
from results.store.errors import StoreError
from results.store.files import leftovers, temporary_name, writing
from results.store.locks import is_held

LOCKED_BY = re.compile(r"(process \d+ on .*)?")
"""What a cell's lock file holds."""
TEMPORARY = re.compile(r"\..+\.\d+\.leeway")
"""`temporary_name` of any machine."""
LEFT = "left by a killed process"
State = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Orphan:
    """A cell or a folder to remove.

    path    in the store's folder
    reason  why no command reads it, in one line
    state   of its files when it was listed; empty for leftovers of a killed process
    """

    path: Path
    reason: str
    state: State = ()


def orphans(store: Store, is_stale: Callable[[Mapping[str, Any]], str]) -> list[Orphan]:
    """Cells that `is_stale` gives a reason for (configuration -> why no command reads it, else empty), empty cell
    folders that no process holds, and leftovers of killed processes of this machine. A damaged cell is no orphan, nor
    is a link."""
    if not store.root.is_dir():
        return []
    listed = [Orphan(cell.path, reason, _state(cell.path)) for cell in store.cells()
              if not cell.path.is_symlink() and (reason := is_stale(_config(cell)))]
    listed += [Orphan(path, "empty cell folder", _state(path))
               for path in store.folders() if not (path / "cell.yaml").exists() and _is_abandoned(path)]
    return listed + [Orphan(path, LEFT) for path in leftovers(store.root)]


def _config(cell: CellFolder) -> Mapping[str, Any]:
    try:
        return cell.config() or {}
    except StoreError:  # damaged
        return {}


def _state(folder: Path) -> State:
    """Name, time of the last change and size of each file in a cell's folder but its lock."""
    files = [(path.name, path.stat(follow_symlinks=False)) for path in sorted(folder.iterdir())]
    return tuple((name, status.st_mtime_ns, status.st_size) for name, status in files if name != ".lock")


def _is_abandoned(folder: Path) -> bool:
    """Whether a folder holds nothing but the lock of a cell and what killed processes left of its files, and no process
    has locked it to fill it."""
    lock = folder / ".lock"
    if folder.is_symlink() or not {*folder.iterdir()} <= {lock, *leftovers(folder)}:
        return False
    return not lock.is_symlink() and (not lock.exists() or (_is_lock(lock) and not is_held(lock)))


def _is_lock(file: Path) -> bool:
    return file.is_file() and bool(LOCKED_BY.fullmatch(file.read_bytes()[:1000].decode(errors="replace")))


def _foreign(cell: Path) -> str:
    """The first file or link in a cell's folder that this project did not write; empty without any."""
    for path in sorted(cell.rglob("*")):
        parts = path.relative_to(cell).parts
        is_own = parts == (".lock",) or is_known(parts) or any(map(TEMPORARY.fullmatch, parts))
        if path.is_symlink() or not (path.is_dir() or is_own):
            return "/".join(parts)
    return ""


def remove(orphan: Orphan, store: Store) -> None:
    """Remove an orphan; after a kill it is either complete or gone. Raises StoreError if it changed after it was
    listed, is being written, or holds a file that this project did not write."""
    if orphan.reason == LEFT:
        shutil.rmtree(orphan.path) if orphan.path.is_dir() else orphan.path.unlink()
        return
    cell = store.cell(orphan.path.name)
    with cell.lock():
        if _state(cell.path) != orphan.state:
            raise StoreError(f"{orphan.path}: changed since it was listed: list it again")
        if foreign := _foreign(orphan.path):
            raise StoreError(f"{orphan.path}: holds {foreign}, which is no file of a cell: move it away")
        aside = temporary_name(orphan.path)
        with writing(orphan.path):
            orphan.path.rename(aside)
            shutil.rmtree(aside)
