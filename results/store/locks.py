"""Lock files: one process holds each, and the system releases the lock when that process ends, however it ends.

`flock` locks hold across the hosts that share an NFSv4 mount (where the server releases those of a lost client after
its lease, 90 s by default) or a Lustre mount with `-o flock`. A file system that refuses them is an error."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from results.store.errors import Locked, StoreError
from results.store.files import writing

log = logging.getLogger(__name__)
REFUSED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of `flock` on a file system without locks."""
MOUNTS = Path("/proc/self/mounts")
ON_ONE_HOST = {"nfs": {"nolock", "local_lock=all", "local_lock=flock"}, "lustre": {"localflock", "noflock"}}
"""File system -> mount options with which a lock holds only on one host, or not at all."""
REMEDY = "mount it with locks (NFSv4; Lustre with -o flock), or give a store.dir on another file system"


@contextmanager
def held(path: Path, text: str, what: str, *, wait: bool = False, name: Callable[[str], str] = str) -> Iterator[None]:
    """Hold the lock file `path`, so that only this process writes `what`; meanwhile the file's content is `text`, from
    which `name` makes the name of the holder.

    If another process holds it: with `wait`, log that and wait until it ends; otherwise raise Locked. Raises
    StoreError for a folder that cannot be written or a file system without locks."""
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = open(path, "a+", encoding="utf-8", opener=_no_link)  # noqa: SIM115  closed by the block below
    with opened as file:
        if not _lock(file.fileno(), path, fcntl.LOCK_EX | fcntl.LOCK_NB):
            file.seek(0)
            holder = name(file.read()) or "another process"
            if not wait:
                raise Locked(f"{what} is being written by {holder}: wait until it ends, or stop it")
            log.warning("waiting for %s, which writes %s", holder, what)
            _lock(file.fileno(), path, fcntl.LOCK_EX)
        with writing(path.parent):
            file.truncate(0)
            file.write(text)
            file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _no_link(path: str, flags: int) -> int:
    """Opens a lock file; a link there would lead to a file that is no lock."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock file now. Raises StoreError for a file system without locks."""
    with open(path, encoding="utf-8") as file:
        return not _lock(file.fileno(), path, fcntl.LOCK_SH | fcntl.LOCK_NB)


def check_across_hosts(folder: Path) -> None:
    """Raises StoreError if `folder` is on a mount whose locks other hosts do not see."""
    kind, options = _mount(folder.resolve())
    family = "nfs" if kind.startswith("nfs") else kind
    if refusing := ON_ONE_HOST.get(family, set()) & options:
        raise StoreError(f"{folder}: mounted as {kind} with {', '.join(sorted(refusing))}: processes on other hosts do "
                         f"not see its locks; {REMEDY}")


def _lock(descriptor: int, path: Path, kind: int) -> bool:
    """False where another process holds the file. Raises StoreError."""
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        raise StoreError(f"{path}: this file system refuses locks ({error.strerror}): {REMEDY}") from error
    return True


def _mount(folder: Path) -> tuple[str, set[str]]:
    """Type and options of the mount that holds `folder`; empty if the system does not list it."""
    lines = MOUNTS.read_text(encoding="utf-8").splitlines() if MOUNTS.exists() else []
    mounts = [(Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields[1])), fields[2],
               set(fields[3].split(","))) for fields in map(str.split, lines)]
    holding = [mount for mount in mounts if folder.is_relative_to(mount[0])]
    if not holding:
        return "", set()
    _, kind, options = max(reversed(holding), key=lambda mount: len(mount[0].parts))
    return kind, options
