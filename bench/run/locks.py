"""The machine: whose clock a row was timed with, and the lock that keeps passes apart."""

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

from bench.config.errors import ConfigError

log = logging.getLogger(__name__)
LOCK, DEFAULT = "LEEWAY_LOCK", "/tmp/leeway.lock"
"""The environment variable that names the file that processes of one machine lock; the kernel drops
a lock when its process dies."""
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Stamp:
    """The host, its boot, when the measuring session began (ISO 8601, UTC), whether other workers
    run on the host meanwhile, and the CPU threads of the clock, once they are chosen, as `Timed`
    records them."""

    host: str
    boot: str
    started: str
    shared: bool
    threads: int | None = None

    @classmethod
    def now(cls, shared: bool) -> Stamp:
        boot = BOOT.read_text().strip() if BOOT.exists() else ""
        return cls(
            socket.gethostname(), boot, datetime.now(UTC).isoformat(timespec="milliseconds"), shared
        )


@contextmanager
def machine(*, alone: bool) -> Iterator[None]:
    """Hold the machine. Alone for a timed pass: no other pass of Leeway runs meanwhile; else for a
    quality pass: others may decode too, but nobody is timed. Raises ConfigError for a wrong
    LEEWAY_LOCK."""
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    path = Path(os.environ.get(LOCK) or DEFAULT)
    if not path.parent.is_dir():
        raise ConfigError(f"{LOCK}={path}: no such folder; give a file in a folder that exists")
    # without O_CREAT where it exists: /tmp refuses that for another user's file
    file = os.open(path, os.O_RDONLY if path.exists() else os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning(
                "waiting for another run of Leeway on this machine, which %s (`fuser -v %s` "
                "names it; timed=0 does not wait for decoding)",
                "decodes" if alone else "is timed",
                path,
            )
            fcntl.flock(file, kind)
        yield
    finally:
        os.close(file)
