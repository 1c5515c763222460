"""Digests that a cell's files carry: what was changed, or copied from another cell, is not taken for what was measured.

What carries no digest is taken as it is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from results.store.json_text import json_text

DIGITS = 16
"""Hex digits of a line's digest."""
_SEALED = re.compile(rb'(.*), "digest": "([0-9a-f]{%d})"\}\n' % DIGITS, re.DOTALL)


def sealed(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What a JSON file holds: the object, and the SHA-256 of its text as `digest`. Raises ValueError for a number that
    JSON does not have."""
    return {**plain, "digest": _sha256(json_text(plain).encode())}


def unsealed(stored: Any) -> Any:
    """The object of a JSON file, without its digest. Raises ValueError where it was changed."""
    if not isinstance(stored, dict) or "digest" not in stored:
        return stored
    plain = {name: value for name, value in stored.items() if name != "digest"}
    if stored["digest"] != _sha256(json_text(plain).encode()):
        raise ValueError("changed since it was written")
    return plain


def settings_digest(cell: str, plain: Mapping[str, Any]) -> str:
    """The digest of a cell's key and its settings, in whatever order. Raises ValueError as `sealed`."""
    return _of_line(cell, json_text(dict(sorted(plain.items()))).encode()).decode()


def sealed_line(cell: str, plain: Mapping[str, Any]) -> bytes:
    """A line of a cell's file, its newline included: the object, and last a digest of the cell's key and the object.
    Raises ValueError for a number that JSON does not have."""
    text = json_text(plain).encode()
    return b'%s, "digest": "%s"}\n' % (text[:-1], _of_line(cell, text))


def unsealed_line(cell: str, line: bytes) -> bytes:
    """The object of a line as JSON, without its digest. Raises ValueError where it was changed or is another cell's."""
    if (parts := _SEALED.fullmatch(line)) is None:
        return line
    text = parts[1] + b"}"
    if parts[2] != _of_line(cell, text):
        raise ValueError("changed since it was written, or copied from another cell")
    return text


def _of_line(cell: str, text: bytes) -> bytes:
    return _sha256(cell.encode() + b"\n" + text)[:DIGITS].encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
