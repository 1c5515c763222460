"""The state of a store: its cells by rotation, complete, running, failed or open; the time left of running ones; and
what no command reads any longer, which is removed only where it was listed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from results.store.cells import CellFolder, Entry, Store
from results.store.errors import StoreError
from results.store.files import Holder, holders, is_held, leftovers, temporary_name, writing
from results.store.records import is_known

State = Literal["complete", "running", "failed", "open", "damaged"]
STATES: tuple[State, ...] = ("complete", "running", "failed", "open", "damaged")
"""open: begun, not finished, and without a process that works on it."""
LOCKED_BY = re.compile(r"(process \d+ on .*)?")
"""What a cell's lock file holds."""
TEMPORARY = re.compile(r"\..+\.\d+\.leeway")
"""`temporary_name` of any machine."""
LEFT = "left by a killed process"
Files = tuple[tuple[str, int, int], ...]


@dataclass(slots=True)
class RotationState:
    """The cells of a store that are timed beside one baseline.

    entries  of these cells
    states   of these cells, in the same order
    holder   the process that works on them, or None
    unbegun  cells that the holder has not begun and of which the store holds nothing yet
    seconds  time left, s; None if it cannot be estimated yet
    partly   `seconds` excludes the timed pass, which cannot be estimated yet
    """

    entries: list[Entry] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    holder: Holder | None = None
    unbegun: int = 0
    seconds: float | None = None
    partly: bool = False

    @property
    def is_done(self) -> bool:
        """Whether all cells are complete, and no process works on them."""
        return self.holder is None and set(self.states) <= {"complete"}


def rotations(store: Store, now: datetime) -> list[RotationState]:
    """The rotations of a store: running ones first, then others that are not done."""
    entries = list(store.entries())
    held = list(holders(store.root).values())
    working = {cell: holder for holder in held for cell in holder.cells}
    groups: dict[tuple[str, int], RotationState] = {}
    for entry in entries:
        group = groups.setdefault((entry.baseline, entry.batch), RotationState())
        group.entries.append(entry)
        group.states.append(state_of(entry, entry.key in working))
        group.holder = working.get(entry.key, group.holder)
    listed, keys = list(groups.values()), {entry.key for entry in entries}
    for holder in held:
        own, unbegun = [group for group in listed if group.holder is holder], len(set(holder.cells) - keys)
        if len(own) == 1:
            own[0].unbegun = unbegun
        elif unbegun:  # their rotation is not known yet
            listed.append(RotationState(holder=holder, unbegun=unbegun))
    for group in listed:
        if group.holder is not None:
            group.seconds, group.partly = time_left(group, store, now)
    return sorted(listed, key=lambda group: (group.holder is None, group.is_done))


def state_of(entry: Entry, is_held: bool) -> State:
    """The state of a cell; `is_held`: a process that will complete it works on its rotation."""
    if entry.damage:
        return "damaged"
    if entry.complete:
        return "complete"
    if is_held:
        return "running"
    if entry.failure:
        return "failed"
    return "open"


def time_left(group: RotationState, store: Store, now: datetime) -> tuple[float | None, bool]:
    """Seconds until the holder of a rotation has completed its cells, and whether they exclude the timed pass. Answers
    are extrapolated at the rate of this run, timed prompts at the mean of those timed so far.

    Cells not begun are assumed to take the average of the others. (None, False) before the first answer."""
    assert group.holder is not None
    began = group.holder.since
    running = [entry for entry, state in zip(group.entries, group.states, strict=True)
               if state == "running" and entry.run and entry.run["since"] >= began]
    if not running:
        return None, False
    cells = 1 + group.unbegun / len(running)
    answers = sum(entry.run["prompts"] - entry.answered for entry in running)
    given = sum(entry.answered - entry.run["answered_before"] for entry in running)
    spent = (now - min(datetime.fromisoformat(entry.run["since"]) for entry in running)).total_seconds()
    untimed = sum(max(0, entry.run["timed"] - entry.timed) for entry in running)
    clocks = [arm.prefill_s + arm.decode_s for entry in running for row in store.cell(entry.key).timed()
              for arm in row.runs] if untimed else []
    if answers and not given:
        return None, False
    left = answers * cells * spent / given if answers else 0.0
    return left + (untimed * cells * 2 * mean(clocks) if clocks else 0.0), bool(untimed and not clocks)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A cell or a folder to remove.

    path    in the store's folder
    reason  why no command reads it, in one line
    state   of its files when it was listed; empty for leftovers of a killed process
    """

    path: Path
    reason: str
    state: Files = ()


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


def _state(folder: Path) -> Files:
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
