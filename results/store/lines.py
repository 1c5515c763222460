"""Records on disk: one JSON object a line, with a digest of the cell's key and the object as its last value.

The digest finds what a torn line does not show: a line that was edited, that rotted, or that was copied from another
cell is not taken for what was measured here. A line without one is taken as it is. JSON files are a line too; those of
version 0.2 span several lines."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from results.store.errors import StoreError
from results.store.files import content_of
from results.store.json_text import from_json, json_text

log = logging.getLogger(__name__)
DIGITS = 16
"""Hex digits of a digest."""
_LINE = re.compile(rb'(.*), "digest": "([0-9a-f]{%d})"\}\n' % DIGITS, re.DOTALL)
_START = re.compile(rb'\{"id": ("(?:[^"\\]|\\.)*"), ("error": )?')
Stamp = tuple[int, int, int]
"""Time of the last change in ns, size in bytes, inode."""
Parsed = TypeVar("Parsed")


def digest_of(cell: str, text: str) -> str:
    """The digest of a cell's key and a JSON text."""
    return hashlib.sha256(f"{cell}\n{text}".encode()).hexdigest()[:DIGITS]


def line_of(cell: str, plain: Mapping[str, Any]) -> str:
    """A line of a cell's file, its newline included. Raises ValueError for a number that JSON does not have."""
    text = json_text(plain)
    return f'{text[:-1]}, "digest": "{digest_of(cell, text)}"}}\n'


def object_of(cell: str, line: bytes) -> bytes:
    """The object of a line as JSON, without its digest. Raises ValueError where it was changed or is another cell's."""
    if (parts := _LINE.fullmatch(line)) is None:
        return line
    text = parts[1] + b"}"
    if parts[2].decode() != hashlib.sha256(cell.encode() + b"\n" + text).hexdigest()[:DIGITS]:
        raise ValueError("changed since it was written, or copied from another cell")
    return text


def plain_of(cell: str, content: bytes, sealed: bool = False) -> Any:
    """The value of a JSON file with this content. Raises ValueError; if `sealed`, also for one without a digest."""
    text = object_of(cell, content)
    value = from_json(text)
    if text is not content:
        return value
    if isinstance(value, dict) and "digest" in value:  # as version 0.2 wrote it
        if value.pop("digest") != hashlib.sha256(json_text(value).encode()).hexdigest():
            raise ValueError("changed since it was written")
    elif sealed:
        raise ValueError("without its digest")
    return value


def whole_lines(path: Path, content: bytes, parse: Callable[[bytes], Parsed],
                what: str) -> Iterator[tuple[str, Parsed]]:
    """(place, record) of each line of a file with this content; `what` names a record in messages.

    A last line without its newline is still being written, or was when its process was killed: it is left out with a
    warning. Raises StoreError, naming file and line, where `parse` raises ValueError, and for a line that was changed
    or copied from another cell. `parse` gets the line's object as JSON."""
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        where = f"{path} line {number}"
        if not line.endswith(b"\n"):
            log.warning("%s is unfinished and left out; its prompt will be decoded again", where)
            return
        try:
            record = parse(object_of(path.parent.name, line))
        except ValueError as error:
            complaint = f"{where} is not a {what} ({error})"
            raise StoreError(f"{complaint}: remove the line to decode its prompt again") from error
        yield where, record


def count(path: Path) -> tuple[int, int]:
    """Prompts with a result in a file of lines, and prompts that failed; an unfinished last line is left out. Lines are
    not parsed. Raises StoreError, naming file and line, for one that does not begin as a record does."""
    failed: dict[bytes, bool] = {}
    for number, line in enumerate((content_of(path) or b"").split(b"\n")[:-1], start=1):
        if (start := _START.match(line)) is None:
            raise StoreError(f"{path} line {number} is not a record: remove the line to decode its prompt again")
        failed[start[1]] = start[2] is not None
    return len(failed) - sum(failed.values()), sum(failed.values())


class LineCache:
    """Records of the files read last, so that one command parses each file once. A file that changed is read again.

    limit   bytes of files whose records are kept; the file read last is kept whatever its size
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[Path, tuple[Stamp, list[Any]]] = {}

    def read(self, path: Path, parse: Callable[[Path, bytes], list[Parsed]]) -> list[Parsed]:
        """What `parse` makes of the file's path and content; empty where there is no file."""
        if (stamp := _stamp(path)) is None:
            return []
        kept = self._kept.pop(path, None)
        if kept is None or kept[0] != stamp:
            kept = stamp, parse(path, content_of(path) or b"")
        self._kept[path] = kept  # the last one is the one read last
        held = sum(size for (_, size, _), _ in self._kept.values())
        while held > self._limit and len(self._kept) > 1:
            (_, size, _), _ = self._kept.pop(next(iter(self._kept)))
            held -= size
        return list(kept[1])


def _stamp(path: Path) -> Stamp | None:
    """None where there is no file."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
