"""A thread that kills one worker of a store as soon as it has written something."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from results.store.files import Holder, holders


def kill(holder: Holder) -> None:
    """kill -9."""
    os.kill(holder.process, signal.SIGKILL)


class Killer(threading.Thread):
    """Calls `end` on a process that holds a rotation of the store once one of the rotation's cells has `samples`
    samples.

    killed  what it held; None while none was killed."""

    def __init__(self, store: Path, end: Callable[[Holder], None] = kill, samples: int = 2) -> None:
        super().__init__(daemon=True)
        self._store, self._end, self._samples = store, end, samples
        self._over = threading.Event()
        self.killed: Holder | None = None

    def run(self) -> None:
        while not self._over.is_set() and self.killed is None:
            for holder in holders(self._store).values():
                if any(self._lines(cell) >= self._samples for cell in holder.cells):
                    self._end(holder)
                    self.killed = holder
                    break
            time.sleep(0.02)

    def _lines(self, cell: str) -> int:
        file = self._store / cell / "samples.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
