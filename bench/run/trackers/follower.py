"""Live values of cells: read from the store, whoever decodes them, on this machine or on others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.run.timed_pass import machine_lock as machine
from results.metrics.so_far import SoFar
from results.store.cells import Store
from results.store.errors import StoreError

if TYPE_CHECKING:
    from bench.run.trackers.base import OpenRun
    from results.store.cells import CellFolder

EVERY_S = 5.0
"""Seconds between two looks at the store."""


class Follower:
    """Looks at the store now and then, and logs the cells that have more answers than at the look before."""

    def __init__(self, names: Iterable[str], store: Path, run_of: Callable[[CellFolder], OpenRun]) -> None:
        opened = Store(store)
        self._folders, self._run_of = [opened.cell(name) for name in names], run_of
        self._ended = threading.Event()
        self._seen: dict[str, tuple[SoFar, float | None]] = {
            folder.key: (so_far(folder), None) for folder in self._folders}

    def stop(self) -> None:
        """Look once more and end."""
        self._ended.set()

    def run(self) -> None:
        """Look until `stop` is called, but not while something is timed on this machine."""
        while not self._ended.wait(EVERY_S):
            if not machine.is_timing():
                self._look()
        self._look()

    def _look(self) -> None:
        for folder in self._folders:
            (before, at), now, current = self._seen[folder.key], time.monotonic(), so_far(folder)
            if current.answers <= before.answers or current.tau is None:
                continue
            values = {"prompts": float(current.answers), "tau": current.tau}
            if at is not None:
                values["tokens_per_s"] = (current.tokens - before.tokens) / (now - at)
            self._seen[folder.key] = current, now
            self._run_of(folder).live(values)


def so_far(folder: CellFolder) -> SoFar:
    """The answers in a folder; none in one that cannot be read, which the pass that needs it reports."""
    try:
        return SoFar.of(folder.good_samples())
    except StoreError:
        return SoFar()
