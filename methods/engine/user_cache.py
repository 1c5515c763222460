"""The user's cache folder: what is fetched or converted once, and the SHA-256 of large files.

    packages/NAME==VERSION/       an unpacked wheel
    gguf2/SHA256/                 a GGUF file, converted
    sha256/HASH-OF-PATH.json      the SHA-256 of a file, for as long as its size, times and inode
                                  stay the same
    measured/HASH-OF-NAME.json    what the engine was found to do right with a model

Several processes may use it at once, and each may be killed at any time."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

Noted = TypeVar("Noted")


def cache_folder() -> Path:
    """$LEEWAY_CACHE, else `leeway` in $XDG_CACHE_HOME, else ~/.cache/leeway."""
    if folder := os.environ.get("LEEWAY_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leeway"


def gguf_folder(sha256: str) -> Path:
    """Where the GGUF file with this SHA-256 is kept in converted form."""
    return cache_folder() / "gguf2" / sha256


def package_folder(requirement: str) -> Path:
    """Where the wheel of NAME==VERSION is kept unpacked."""
    return cache_folder() / "packages" / requirement


def package_file(path: str) -> Path:
    """Where NAME==VERSION/PATH is kept."""
    requirement, _, member = path.partition("/")
    return package_folder(requirement) / member


def make_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, filled by `make(partial)` unless it exists. It appears whole or not at all; of
    several processes one makes it and the others wait. Raises what `make` raises, and OSError where
    the cache cannot be written."""
    if folder.is_dir():
        return folder
    with _locked(folder):
        if folder.is_dir():
            return folder
        partial = folder.with_name(f".{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
        partial.mkdir()
        try:
            make(partial)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Waits until no other process holds the lock of `path`; the kernel drops it when a process
    dies. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sha256(file: Path) -> str:
    """The SHA-256 of a file's contents, 64 hex digits, computed once. Raises OSError."""
    if (remembered := known_sha256(file)) is not None:
        return remembered
    before = _state(file)
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if _state(file) == before:
        with suppress(OSError):  # a read-only cache remembers nothing
            _write(
                _note(file),
                json.dumps({"file": str(file.resolve()), "state": before, "sha256": digest}),
            )
    return digest


def known_sha256(file: Path) -> str | None:
    """The SHA-256 of a file if it was computed before and the file has not changed since."""
    try:
        noted = json.loads(_note(file).read_text(encoding="utf-8"))
        return str(noted["sha256"]) if noted["state"] == _state(file) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def noted(name: str, measure: Callable[[], Any], read: Callable[[Any], Noted]) -> Noted:
    """What is called `name`, JSON data as `read` understands it: measured once, by one of several
    processes, and kept where the cache can be written. What `read` refuses with ValueError,
    KeyError or TypeError is measured anew."""
    file = cache_folder() / "measured" / f"{hashlib.sha256(name.encode()).hexdigest()}.json"
    with ExitStack() as locks:
        for locked in (False, True):  # another process may have measured meanwhile
            with suppress(OSError, ValueError, KeyError, TypeError):
                return read(json.loads(file.read_text(encoding="utf-8"))["value"])
            with suppress(OSError):
                if not locked:
                    locks.enter_context(_locked(file))
        value = measure()
        with suppress(OSError):
            _write(file, json.dumps({"name": name, "value": value}))
    return read(value)


def _state(file: Path) -> list[int]:
    now = file.stat()
    # ctime: nobody can set it back
    return [now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino]


def _note(file: Path) -> Path:
    name = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()
    return cache_folder() / "sha256" / f"{name}.json"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=".", delete=False
    ) as file:
        file.write(text)
    os.replace(file.name, path)
