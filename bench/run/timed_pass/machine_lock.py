"""The machine that measures: the lock that keeps timed passes alone on it, and how one measuring session is named."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

log = logging.getLogger(__name__)
LOCK = Path("/tmp/leeway.lock")
"""Of the whole machine, whoever runs Leeway on it. The kernel drops a lock when its process dies."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
LOCKS = Path("/proc/locks")
TOLD_EVERY_S = 30.0
LONGEST_COMMAND = 200
"""Characters of another process's command that are shown."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The host, its boot, when the measuring session began (ISO 8601, UTC), whether other workers run on the host
    meanwhile, and the CPU threads of the clock, once they are chosen, as `Timed` records them."""

    host: str
    boot: str
    started: str
    shared: bool
    threads: int | None = None

    @classmethod
    def now(cls, shared: bool) -> Stamp:
        boot = BOOT.read_text().strip() if BOOT.exists() else ""
        return cls(socket.gethostname(), boot, datetime.now(UTC).isoformat(timespec="seconds"), shared)


@contextmanager
def decoding() -> Iterator[None]:
    """Hold the machine for a quality pass: others may decode too, but nobody is timed meanwhile."""
    with _held(fcntl.LOCK_SH, "is being timed; nothing else decodes meanwhile"):
        yield


@contextmanager
def alone() -> Iterator[None]:
    """Hold the machine for a timed pass: no other pass of Leeway runs meanwhile."""
    with _held(fcntl.LOCK_EX, "decodes; timed=0 would not wait"):
        yield


def is_timing() -> bool:
    """Whether a timed pass holds this machine."""
    if not LOCK.exists():
        return False
    with open(LOCK) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def _held(kind: int, other: str) -> Iterator[None]:
    try:
        file = os.open(LOCK, os.O_RDONLY)  # without O_CREAT, which /tmp refuses for another user's file
    except FileNotFoundError:
        file = os.open(LOCK, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        _wait(file, kind, other)
        yield
    finally:
        os.close(file)


def _wait(file: int, kind: int, other: str) -> None:
    """Take the lock; until it is there, say at once and then every `TOLD_EVERY_S` who holds it."""
    try:
        return fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        done = Event()
    Thread(target=_tell, args=(file, other, done), daemon=True).start()
    try:
        fcntl.flock(file, kind)
    finally:
        done.set()


def _tell(file: int, other: str, done: Event) -> None:
    began = time.monotonic()
    while not done.is_set():
        waited = round(time.monotonic() - began)
        log.warning("waiting%s for %s, which %s", f" {waited} s" if waited else "",
                    " and ".join(holders(file)) or "another process", other)
        done.wait(TOLD_EVERY_S)


def holders(file: int) -> list[str]:
    """`process 123 (python -m bench report=controls; store /data/store)`, of each process that holds the lock of this
    file; empty where the kernel does not say."""
    inode, own = os.fstat(file).st_ino, os.getpid()
    try:
        lines = [line.split() for line in LOCKS.read_text().splitlines()]
    except OSError:
        return []
    held = sorted({int(line[4]) for line in lines if line[1] == "FLOCK" and int(line[5].rpartition(":")[2]) == inode})
    return [_described(pid) for pid in held if pid not in (0, own)]


def _described(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    except OSError:
        return f"process {pid}"
    command = " ".join([Path(words[0]).name, *words[1:]])
    given = dict(word.split("=", 1) for word in words if "=" in word)
    store = given.get("store.dir") or f"{given.get('output.dir', 'outputs')}/store"
    return f"process {pid} ({command[:LONGEST_COMMAND]}; store {store})"
