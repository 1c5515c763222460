"""The identity of plain settings: a hash, with the contents of files in the place of their paths."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings -> one mapping with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in plain.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def contents(path: Path) -> str:
    """What lies at a path: the SHA-256 of a file, or of all files of a folder with their names."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    found = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            found.update(f"{file.relative_to(path)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def _name_contents(plain: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Put the contents of files in the place of their paths, in `plain`, the JSON form of `options`."""
    for key, value in options.items():
        if isinstance(value, Path):
            plain[key] = contents(value)
        elif isinstance(value, Mapping):
            _name_contents(plain[key], value)


def digest(plain: Mapping[str, Any]) -> str:
    """10 hex digits of plain data, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]
