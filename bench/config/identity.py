"""The identity of plain settings: a hash, with the contents of files in the place of their paths.

An option that is added later to a section, rule, drafter or task has an `exclude_if` for its
default: it then enters neither the identity nor cell.yaml, and stored cells keep their names. That
default may never mean something else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from stat import S_ISREG
from typing import Any

from bench.config.errors import ConfigError
from bench.config.paths import TINY
from methods.engine.fingerprints import fingerprint

IDENTITY_VERSION = 3
"""Raise it when the same settings come to mean another computation."""


def are_own(fingerprints: Iterable[str]) -> bool:
    """Whether all these models are among those that the project ships in models/tiny."""
    shipped = {fingerprint(str(file.parent)) for file in TINY.glob("*/config.json")}
    return shipped.issuperset(fingerprints)


def contents(path: Path) -> str:
    """SHA-256 of a file, or of all files of a folder with their names. Raises ConfigError where
    there is none."""
    if path.is_dir():
        folder = hashlib.sha256()
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            folder.update(f"{file.relative_to(path)}\0".encode() + bytes.fromhex(contents(file)))
        return folder.hexdigest()
    try:
        state = path.stat()
    except OSError as error:
        raise ConfigError(f"{path}: no such file") from error
    if not S_ISREG(state.st_mode):
        raise ConfigError(f"{path}: no regular file; a pipe or device could go on without end")
    return _sha256(path, state.st_mtime_ns, state.st_size)


@cache
def _sha256(path: Path, mtime_ns: int, size: int) -> str:
    """Of a file that has not changed since: a report names it for each of its cells."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def by_content(plain: Any, values: Any) -> Any:
    """`plain`, JSON data, with the content of files in place of their paths. `values` is the same
    data in Python's types, where exactly the paths are `Path`s."""
    if isinstance(values, Path):
        return contents(values)
    if isinstance(values, Mapping):
        return {
            key: by_content(below, value)
            for (key, below), value in zip(plain.items(), values.values(), strict=True)
        }
    if isinstance(values, list | tuple):
        return list(map(by_content, plain, values))
    return plain


def digest(plain: Mapping[str, Any]) -> str:
    """10 hex digits of plain data, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]
