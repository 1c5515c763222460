"""Files and locks of a store. A crash leaves the old content of a file or the new one; a lock ends
with its process.

`filelock` holds the lock of a cell, <root>/<key>/.lock, with `flock`. The file's content is its
last `Holder`. These locks hold across the hosts that share an NFSv4 mount (where the server
releases those of a lost client after its lease, 90 s by default) or a Lustre mount with `-o flock`.
A file system that refuses them is an error."""

from __future__ import annotations

import glob
import json
import logging
import mmap
import os
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import psutil
from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from results.store.errors import Locked, StoreError

log = logging.getLogger(__name__)
PROBE = bytes(4096)
"""Written to find out whether a file system has room: a page, less than any sample, trace or
table."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise StoreError, one line, in place of an OSError: what cannot be written, and why."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


def content_of(path: Path) -> bytes | None:
    """The bytes of a file; None where there is none. Raises StoreError for one that cannot be
    read."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error


def check_writable(folder: Path, key: str) -> None:
    """Make `folder`, given as `key`, and write and remove a small file in it. Raises StoreError
    where that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _temporary(folder / "probe") as temporary:
            temporary.write_bytes(PROBE)
            _sync(temporary)
    except OSError as error:
        reason = "not a folder" if folder.is_file() else error.strerror or str(error)
        raise StoreError(f"{folder}: cannot be written: {reason}; give another {key}") from error


def check_creatable(folder: Path, key: str) -> None:
    """As `check_writable`, for what may be run later: the folder is not made, so its nearest parent
    is written."""
    nearest = next(
        path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path)
    )
    if not nearest.is_dir():
        raise StoreError(
            f"{folder}: cannot be written: {nearest} is not a folder; give another {key}"
        )
    if any(len(os.fsencode(name)) > os.pathconf(nearest, "PC_NAME_MAX") for name in folder.parts):
        raise StoreError(
            f"{folder}: cannot be written: a name in it is too long; give another {key}"
        )
    check_writable(nearest, key)


def check_writable_file(path: Path, key: str) -> None:
    """As `check_writable` for a file, given as `key`."""
    if path.is_dir():
        raise StoreError(
            f"{path}: cannot be written: it is a folder; give the name of a file as {key}"
        )
    check_writable(path.parent, key)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which takes its place when the block ends. A reader sees the
    old file or the new one, never a part of it, even after a crash; after an error nothing of the
    new one is left. Raises StoreError."""
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
    """Copy these files of a folder, relative to it, into a folder that does not exist; it appears
    complete or not at all. Raises StoreError."""
    temporary = temporary_name(target)
    with writing(target):
        remove_leftovers(target)
        try:
            for name in names:
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, temporary / name, follow_symlinks=False)
            for path in (*temporary.rglob("*"), temporary):
                _sync(path)
            temporary.rename(target)
            _sync(target.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """`temporary_name`, removed at the end. What killed processes of this machine left there is
    removed first."""
    remove_leftovers(path)
    temporary = temporary_name(path)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def temporary_name(path: Path) -> Path:
    """Where this process writes what is to become `path`: `.NAME.HOST.PROCESS.leeway` beside it."""
    return path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.leeway")


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes of this machine left of a file or folder at `temporary_name`; no
    links."""
    for left in path.parent.glob(
        f".{glob.escape(path.name)}.{glob.escape(socket.gethostname())}.*.leeway"
    ):
        process = left.name.split(".")[-2]
        is_running = len(process) < 10 and process.isdecimal() and psutil.pid_exists(int(process))
        if is_running or left.is_symlink() or not process.isdecimal():
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file and wait until it is on disk. Whatever follows the file's last
    newline is cut off. Raises StoreError."""
    with writing(path), open(path, "a+b") as file:
        _cut_unfinished_line(file)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _cut_unfinished_line(file: BinaryIO) -> None:
    """Truncate a file, open for append, behind its last newline."""
    if size := file.seek(0, os.SEEK_END):
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
            end = content.rfind(b"\n") + 1
        if end < size:
            file.truncate(end)
            file.seek(0, os.SEEK_END)


def _sync(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a lock.

    host     the machine's name
    process  its id there
    since    when it took the lock, ISO 8601 in UTC
    """

    host: str
    process: int
    since: str

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} since {self.since}"

    @classmethod
    def of(cls, path: Path) -> Holder | None:
        """The last holder of a lock file; None where it says none: it is being written, or
        damaged."""
        try:
            return _HOLDER.validate_json(path.read_bytes())
        except (ValidationError, OSError):
            return None


_HOLDER = TypeAdapter(Holder)


@contextmanager
def locked(path: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path`, so that only this process writes `what`.

    If another process holds it: with `wait`, log that and wait until it ends; otherwise raise
    Locked. Raises StoreError for a folder that cannot be written or a file system without locks."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    this_process = Holder(socket.gethostname(), os.getpid(), since)

    def acquired(descriptor: int) -> None:
        os.truncate(descriptor, 0)
        os.write(descriptor, json.dumps(asdict(this_process)).encode())

    lock = FileLock(path, fallback_to_soft=False, on_acquired=acquired)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            holder = Holder.of(path) or "another process"
            if not wait:
                raise Locked(
                    f"{what} is being written by {holder}: wait until it ends, or stop it"
                ) from None
            log.warning("waiting for %s, which writes %s", holder, what)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
