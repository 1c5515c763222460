"""The rotations and cells that this process holds, with the numbers of prompts that are asked of each cell."""

from __future__ import annotations

import logging
import os
import resource
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from results.store.errors import Locked, format_exception
from results.store.files import rotation_held

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.store.cells import CellFolder, Store

log = logging.getLogger(__name__)
SPARE_FILES = 256
"""Open files that a command needs besides the locks of its cells."""


@dataclass(slots=True)
class Claim:
    """A cell that this process may write.

    cells    the cell as the command asks for it, once for each number of prompts; at least one.
    folder   locked.
    started  its configuration and environment are on disk.
    """

    cells: list[Cell]
    folder: CellFolder
    started: bool = False

    @property
    def cell(self) -> Cell:
        """The cell that asks for most prompts."""
        return max(self.cells, key=lambda cell: float("inf") if cell.n is None else cell.n)

    @property
    def timed_prompts(self) -> int:
        """The largest number of timed prompts asked for."""
        return max(cell.timed_prompts for cell in self.cells)

    def start(self) -> bool:
        """Write what is known before anything is decoded, once. False, with the reason in the folder, where that
        fails."""
        if not self.started:
            try:
                self.folder.config()  # raises where its settings were edited
                self.folder.write_config(self.cell.record())
                self.folder.write_environment({**self.cell.environment(sys.argv), "run": self._asked()})
            except Exception as error:  # a model's file that is missing, say: only this cell cannot run
                self.fail(error)
                return False
        self.started = True
        return True

    def _asked(self) -> dict[str, int]:
        """What this run asks for and what it found, from which `bench.status` estimates the time left."""
        prompts = len(self.cell.load_task().prompts(self.cell.n, self.cell.seed))
        return {"prompts": prompts, "timed": min(self.timed_prompts, prompts),
                "answered_before": len(self.folder.good_samples())}

    def fail(self, error: Exception | str) -> None:
        """Record why the cell cannot be completed."""
        self.folder.write_failure(error if isinstance(error, str) else format_exception(error))
        log.debug("%s failed", self.cell.name, exc_info=True)


def by_rotation(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """The rotations of these cells, in the order of their first cell."""
    rotations: dict[str, list[Cell]] = {}
    for cell in cells:
        rotations.setdefault(cell.rotation_key, []).append(cell)
    return rotations


def claim_rotations(cells: Iterable[Cell], store: Store, locks: ExitStack) -> tuple[list[Cell], dict[str, str]]:
    """Hold the rotations of these cells, so that no other process works on a part of one. Returns the cells that are
    held, and why the others are left alone, by the cell's name. Raises StoreError."""
    rotations = by_rotation(cells)
    _allow_open_files(len(rotations))
    mine: list[Cell] = []
    refused: dict[str, str] = {}
    for rotation, own in rotations.items():
        names = list(dict.fromkeys(cell.name for cell in own))
        try:
            locks.enter_context(rotation_held(store.root, rotation, names))
        except Locked as error:
            refused |= dict.fromkeys(names, str(error))
            continue
        mine += own
    return mine, refused


def await_holder(cell: Cell, store: Store) -> None:
    """Wait until no other process works on the cell's rotation, nor writes the cell for another one."""
    with rotation_held(store.root, cell.rotation_key, [cell.name], wait=True), store.cell(cell.name).lock(wait=True):
        pass


def claim(cells: Iterable[Cell], store: Store, locks: ExitStack) -> tuple[dict[str, Claim], dict[str, str]]:
    """Lock each of these cells. Returns the claims, and why the others are left alone, both by the cell's name."""
    by_name: dict[str, list[Cell]] = {}
    for cell in cells:
        by_name.setdefault(cell.name, []).append(cell)
    _allow_open_files(len(by_name))
    claims, refused = {}, {}
    for name, same in by_name.items():
        folder = store.cell(name)
        try:
            locks.enter_context(folder.lock())
        except Locked as error:
            refused[name] = str(error)
            continue
        folder.clear_failure()
        claims[name] = Claim(same, folder)
    return claims, refused


def _allow_open_files(locks: int) -> None:
    """Every lock is an open file; the usual soft limit of 1024 is below what report=all needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + locks + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
