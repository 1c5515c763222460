"""The machine that measures: the lock that keeps timed passes alone on it, and how one measuring session is named."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

log = logging.getLogger(__name__)
LOCK = Path("/tmp/leeway.lock")
"""Of the whole machine, whoever runs Leeway on it. The kernel drops a lock when its process dies."""
BOOT = Path("/proc/sys/kernel/random/boot_id")


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
    with _held(fcntl.LOCK_SH, "is timed"):
        yield


@contextmanager
def alone() -> Iterator[None]:
    """Hold the machine for a timed pass: no other pass of Leeway runs meanwhile."""
    with _held(fcntl.LOCK_EX, "decodes"):
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
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning("waiting for another process, which %s on this machine", other)
            fcntl.flock(file, kind)
        yield
    finally:
        os.close(file)
