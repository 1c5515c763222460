"""Write files so that a crash leaves the old or the new content, and name in one line what cannot be written."""

from __future__ import annotations

import glob
import os
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from results.store.errors import StoreError

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
