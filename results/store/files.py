"""Write files so that a crash leaves the old or the new content, and name in one line what cannot be written.

Locks of a store: which process writes a cell, and which works on a rotation.

    <root>/<key>/.lock                  held by the process that writes the cell
    <root>/rotations/<rotation>.json    held by the process that completes the rotation, as a `Holder`

`filelock` holds them with `flock`, so a lock ends with its process, however that ends. A lock file with content that is
not locked names a holder that was killed; after a normal end it is empty. These locks hold across the hosts that share
an NFSv4 mount (where the server releases those of a lost client after its lease, 90 s by default) or a Lustre mount
with `-o flock`. A file system that refuses them is an error."""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import logging
import os
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import psutil
from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from results.store.errors import Locked, StoreError

PROBE = bytes(4096)
"""Written to find out whether a file system has room: a page, less than any sample, trace or table."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise StoreError, one line, in place of an OSError: what cannot be written, and why."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


def content_of(path: Path) -> bytes | None:
    """The bytes of a file; None where there is none. Raises StoreError for one that cannot be read."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error


def check_writable(folder: Path, key: str) -> None:
    """Make `folder`, given as `key`, and write and remove a small file in it. Raises StoreError where that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _temporary(folder / "probe") as temporary:
            temporary.write_bytes(PROBE)
            _sync(temporary)
    except OSError as error:
        reason = "not a folder" if folder.is_file() else error.strerror or str(error)
        raise StoreError(f"{folder}: cannot be written: {reason}; give another {key}") from error


def check_creatable(folder: Path, key: str) -> None:
    """As `check_writable`, for what may be run later: the folder is not made, so its nearest parent is written. Raises
    StoreError."""
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    if not nearest.is_dir():
        raise StoreError(f"{folder}: cannot be written: {nearest} is not a folder; give another {key}")
    if any(len(os.fsencode(name)) > os.pathconf(nearest, "PC_NAME_MAX") for name in folder.parts):
        raise StoreError(f"{folder}: cannot be written: a name in it is too long; give another {key}")
    check_writable(nearest, key)


def check_writable_file(path: Path, key: str) -> None:
    """As `check_writable` for a file, given as `key`."""
    if path.is_dir():
        raise StoreError(f"{path}: cannot be written: it is a folder; give the name of a file as {key}")
    check_writable(path.parent, key)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which takes its place when the block ends. A reader sees the old file or the new
    one, never a part of it, even after a crash; after an error nothing of the new one is left. Raises StoreError."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(path) as temporary:
            yield temporary
            _sync(temporary)
            os.replace(temporary, path)
        _sync(path.parent)


def remove(path: Path) -> None:
    """Remove a file that `replacing` wrote, where there is one."""
    with _temporary(path):
        path.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a whole text file, as `replacing`. Raises StoreError."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, as `replacing`. Raises StoreError."""
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)


def copy_files(source: Path, names: Iterable[Path], target: Path) -> None:
    """Copy these files of a folder, relative to it, into a folder that does not exist; it appears complete or not at
    all. Raises StoreError."""
    temporary = temporary_name(target)
    with writing(target):
        remove_leftovers(target)
        try:
            temporary.mkdir(parents=True)
            for name in names:
                (temporary / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(source / name, temporary / name, follow_symlinks=False)
            for path in (*temporary.rglob("*"), temporary):
                _sync(path)
            temporary.rename(target)
            _sync(target.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """`temporary_name`, removed at the end. What killed processes of this machine left there is removed first."""
    remove_leftovers(path)
    temporary = temporary_name(path)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def temporary_name(path: Path) -> Path:
    """Where this process writes what is to become `path`: `.NAME.HOST.PROCESS.leeway` beside it."""
    return path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.leeway")


def leftovers(folder: Path, name: str = "*") -> list[Path]:
    """What killed processes of this machine left of `temporary_name` in a folder, for `name`; *: for any. Links are
    none of it."""
    pattern = "*" if name == "*" else glob.escape(name)
    found = folder.glob(f".{pattern}.{glob.escape(socket.gethostname())}.*.leeway")
    return [path for path in found if (process := path.name.split(".")[-2]).isdecimal() and not path.is_symlink()
            and not _is_running(int(process))]


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes of this machine left of a file or folder."""
    for left in leftovers(path.parent, path.name):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file and wait until it is on disk. Whatever follows the file's last newline is cut off. Raises
    StoreError."""
    with writing(path), open(path, "a+b") as file:
        _cut_unfinished_line(file)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _cut_unfinished_line(file: BinaryIO) -> None:
    """Truncate a file, open for append, behind its last newline."""
    end = position = file.seek(0, os.SEEK_END)
    while position > 0:
        start = max(0, position - 65536)
        file.seek(start)
        newline = file.read(position - start).rfind(b"\n")
        if newline >= 0:
            position = start + newline + 1
            break
        position = start
    if position < end:
        file.truncate(position)
    file.seek(0, os.SEEK_END)


def _sync(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
