"""The machine: its clock, and the lock that keeps passes apart."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bench.config.errors import ConfigError
from results.store.sample import TimingSession

log = logging.getLogger(__name__)
LOCK, DEFAULT = "LEEWAY_LOCK", "/tmp/leeway.lock"
"""The environment variable that names the file that processes of one machine lock; the kernel drops
a lock when its process dies."""
BOOT = Path("/proc/sys/kernel/random/boot_id")


def timing_session(shared: bool) -> TimingSession:
    """The measuring session that begins now; `shared`: other workers run on the host meanwhile."""
    boot = BOOT.read_text().strip() if BOOT.exists() else ""
    began = datetime.now(UTC).isoformat(timespec="milliseconds")
    return TimingSession(began, socket.gethostname(), boot, shared)


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
