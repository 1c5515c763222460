"""Locks of a store: which process writes a cell, and which works on a rotation.

    <root>/<key>/.lock                  held by the process that writes the cell
    <root>/rotations/<rotation>.json    held by the process that completes the rotation, as a `Holder`

`filelock` holds them with `flock`, so a lock ends with its process, however that ends. A lock file with content that is
not locked names a holder that was killed; after a normal end it is empty. These locks hold across the hosts that share
an NFSv4 mount (where the server releases those of a lost client after its lease, 90 s by default) or a Lustre mount
with `-o flock`. A file system that refuses them is an error."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from results.store.errors import Locked, StoreError
from results.store.files import writing

log = logging.getLogger(__name__)
FOLDER = "rotations"
REFUSED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of `flock` on a file system without locks."""
ON_ONE_HOST = {"nfs": {"nolock", "local_lock=all", "local_lock=flock"}, "lustre": {"localflock", "noflock"}}
"""File system -> mount options with which a lock holds only on one host, or not at all."""
REMEDY = "mount it with locks (NFSv4; Lustre with -o flock), or give a store.dir on another file system"


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that works on a rotation.

    host     the machine's name
    process  its id there
    since    when it took the rotation, ISO 8601 in UTC
    cells    names of the rotation's cells that it completes
    """

    host: str
    process: int
    since: str
    cells: tuple[str, ...]

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} since {self.since}"


_HOLDER = TypeAdapter(Holder)


@contextmanager
def held(path: Path, text: str, what: str, *, wait: bool = False, name: Callable[[str], str] = str) -> Iterator[None]:
    """Hold the lock file `path`, so that only this process writes `what`; meanwhile the file's content is `text`, from
    which `name` makes the name of the holder.

    If another process holds it: with `wait`, log that and wait until it ends; otherwise raise Locked. Raises
    StoreError for a folder that cannot be written or a file system without locks."""
    descriptors: list[int] = []

    def acquired(descriptor: int) -> None:
        descriptors.append(descriptor)
        os.truncate(descriptor, 0)
        os.write(descriptor, text.encode())

    lock = FileLock(path, fallback_to_soft=False, on_acquired=acquired)
    with _locking(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            holder = name(path.read_text(encoding="utf-8")) or "another process"
            if not wait:
                raise Locked(f"{what} is being written by {holder}: wait until it ends, or stop it") from None
            log.warning("waiting for %s, which writes %s", holder, what)
            lock.acquire()
    try:
        yield
    finally:
        os.truncate(descriptors[-1], 0)
        lock.release()


@contextmanager
def rotation_held(root: Path, rotation: str, cells: Sequence[str], *, wait: bool = False) -> Iterator[None]:
    """Hold a rotation of the store `root`, of which `cells` are to be completed. Raises Locked, naming the process that
    holds it; with `wait`, waits until that process ends. Raises StoreError for a store that cannot be locked."""
    path = root / FOLDER / f"{rotation}.json"
    holder = Holder(socket.gethostname(), os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"), tuple(cells))
    what = f"the rotation of {cells[0]}" + (f" and {len(cells) - 1} more cells" if len(cells) > 1 else "")
    with held(path, json.dumps(asdict(holder)), what, wait=wait, name=lambda text: str(_holder(text) or "")):
        yield


def holders(root: Path) -> dict[str, Holder]:
    """Rotation -> the process that works on it now. Raises StoreError for a store that cannot be locked."""
    found = {}
    for path in sorted((root / FOLDER).glob("*.json")):
        holder = _holder(path.read_text(encoding="utf-8"))
        if holder is not None and is_held(path):
            found[path.stem] = holder
    return found


def _holder(text: str) -> Holder | None:
    try:
        return _HOLDER.validate_json(text)
    except ValidationError:  # empty: its holder ended; truncated: its holder is writing it
        return None


def is_held(path: Path) -> bool:
    """Whether a process holds the lock file now; it need not be writable. Raises StoreError for a file system without
    locks."""
    with _locking(path), open(path, encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def _locking(path: Path) -> Iterator[None]:
    """Raise StoreError, one line, in place of an OSError on the way to a lock."""
    with writing(path.parent):
        try:
            yield
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            raise StoreError(f"{path}: this file system refuses locks ({error.strerror}): {REMEDY}") from error


def check_across_hosts(folder: Path) -> None:
    """Raises StoreError if `folder` is on a mount whose locks other hosts do not see."""
    resolved = folder.resolve()
    mounts = [mount for mount in psutil.disk_partitions(all=True) if resolved.is_relative_to(mount.mountpoint)]
    if not mounts:
        return
    mount = max(reversed(mounts), key=lambda mount: len(Path(mount.mountpoint).parts))  # the last one hides others
    family = "nfs" if mount.fstype.startswith("nfs") else mount.fstype
    if refusing := ON_ONE_HOST.get(family, set()) & set(mount.opts.split(",")):
        raise StoreError(f"{folder}: mounted as {mount.fstype} with {', '.join(sorted(refusing))}: processes on other "
                         f"hosts do not see its locks; {REMEDY}")
