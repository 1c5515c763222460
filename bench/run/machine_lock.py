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

from bench.config.errors import ConfigError

log = logging.getLogger(__name__)
LOCK = "LEEWAY_LOCK"
"""Names the file that processes of one machine lock; the kernel drops a lock when its process dies."""
LONGEST_WAIT = "LEEWAY_LOCK_WAIT"
"""Seconds to wait for the lock at most."""
DEFAULTS = {LOCK: "/tmp/leeway.lock", LONGEST_WAIT: "86400"}
BOOT = Path("/proc/sys/kernel/random/boot_id")
LOCKS = Path("/proc/locks")
TOLD_EVERY_S = 30.0
PATIENCE_S = 0.2
"""Between two attempts to take the lock."""
LONGEST_COMMAND = 200
"""Characters of another process's command that are shown."""


class MachineBusy(RuntimeError):
    """Another process has held the machine for longer than LEEWAY_LOCK_WAIT."""


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
    """Hold the machine for a quality pass: others may decode too, but nobody is timed meanwhile.

    Raises MachineBusy, or ConfigError for a wrong LEEWAY_LOCK or LEEWAY_LOCK_WAIT."""
    with _held(fcntl.LOCK_SH, "is being timed; nothing else decodes meanwhile"):
        yield


@contextmanager
def alone() -> Iterator[None]:
    """Hold the machine for a timed pass: no other pass of Leeway runs meanwhile. Raises as `decoding`."""
    with _held(fcntl.LOCK_EX, "decodes; timed=0 would not wait"):
        yield


def is_timing() -> bool:
    """Whether a timed pass holds this machine."""
    try:
        file = os.open(_setting(LOCK), os.O_RDONLY)
    except OSError:  # no pass has begun, or the pass that needs the file reports it
        return False
    try:
        return not _taken(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def _setting(name: str) -> str:
    return os.environ.get(name) or DEFAULTS[name]


def _longest_wait() -> float:
    given = _setting(LONGEST_WAIT)
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"{LONGEST_WAIT}={given}: must be a number of seconds, at least 0")
    return seconds


@contextmanager
def _held(kind: int, other: str) -> Iterator[None]:
    longest, path = _longest_wait(), _setting(LOCK)
    try:
        file = os.open(path, os.O_RDONLY)  # without O_CREAT, which /tmp refuses for another user's file
    except FileNotFoundError:
        if not Path(path).parent.is_dir():
            raise ConfigError(f"{LOCK}={path}: no such folder; give a file in a folder that exists") from None
        file = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        _wait(file, kind, other, longest)
        yield
    finally:
        os.close(file)


def _taken(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(file: int, kind: int, other: str, longest: float) -> None:
    """Take the lock; until it is there, say at once and then every `TOLD_EVERY_S` who holds it.

    Raises MachineBusy after `longest` seconds."""
    began = time.monotonic()
    told = -TOLD_EVERY_S
    while not _taken(file, kind):
        waited = time.monotonic() - began
        if waited >= longest:
            raise MachineBusy(f"waited {waited:.0f} s for {_holders(file)}, which {other}; {LONGEST_WAIT}=SECONDS "
                              f"waits longer, {LOCK}=FILE takes another lock")
        if waited >= told + TOLD_EVERY_S:
            log.warning("waiting%s for %s, which %s", f" {waited:.0f} s" if told >= 0 else "", _holders(file), other)
            told = waited
        time.sleep(min(PATIENCE_S, longest - waited))


def _holders(file: int) -> str:
    return " and ".join(holders(file)) or "another process"


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
