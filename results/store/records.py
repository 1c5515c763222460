"""The files of a cell's folder: their names, and how they are written and parsed.

A record is one JSON object a line, with a digest of the cell's key and the object as its last
value. The digest finds what a torn line does not show: a line that was edited, that rotted, or that
was copied from another cell. A line without a digest is taken as it is. JSON files are a line
too."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from results.store.errors import StoreError, one_line
from results.store.files import content_of

log = logging.getLogger(__name__)
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""The name of a cell's folder."""
RECORDS = ("profile", "agreement", "coverage", "currency", "judge")
"""Further measurements of a cell (`CellFolder.write_record`)."""
FILES = frozenset(
    {
        "cell.yaml",
        "environment.json",
        "samples.jsonl",
        "timed.jsonl",
        "summary.json",
        "failure.json",
        "verdicts.jsonl",
        *(f"{name}.json" for name in RECORDS),
    }
)
TRACE = "trace"
_TRACE_FILE = re.compile(r"\d{5,}\.parquet|failure\.json")
SCHEMA = 2
"""Version of the files of a cell. Raise it when the meaning of a file changes."""
NESTING, LARGEST = (b"[", b"{", b"- ", b"? "), 1 << 20
"""Tokens that begin a level of nesting, except indentation, which takes many bytes; size of a large
file in bytes."""
DEEPEST = 2000
"""Most levels for libyaml's parser: it is faster than Python's, but crashes the process at very
deep nesting."""
DIGITS = 16
"""Hex digits of a digest."""
_LINE = re.compile(rb'(.*), "digest": "([0-9a-f]{%d})"\}\n' % DIGITS, re.DOTALL)
Stamp = tuple[int, int, int]
"""Time of the last change in ns, size in bytes, inode."""
Parsed = TypeVar("Parsed")
_SURROGATE = re.compile("[\ud800-\udfff]")


def json_text(data: Any, indent: int | None = None) -> str:
    """JSON that UTF-8 can carry: a lone surrogate (`'\\ud800'` in an error text) is written as its
    six characters.

    Raises ValueError for NaN and infinities, TypeError for values that JSON does not know."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, indent=indent)
    return _SURROGATE.sub(lambda match: f"\\\\u{ord(match[0]):04x}", text)


def from_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError, also for one that is nested too deeply to be
    read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_known(parts: tuple[str, ...]) -> bool:
    """Whether a path below a cell's folder, in its parts, is of a file that this project writes."""
    if len(parts) == 1:
        return parts[0] in FILES
    return len(parts) == 2 and parts[0] == TRACE and bool(_TRACE_FILE.fullmatch(parts[1]))


def files_of(cell: Path) -> list[Path]:
    """The files of a cell's folder that this project writes, relative to it, sorted. Links are not
    followed."""
    paths = [
        path
        for path in (*cell.iterdir(), *(cell / TRACE).glob("*"))
        if path.is_file() and not path.is_symlink()
    ]
    return sorted(
        path.relative_to(cell) for path in paths if is_known(path.relative_to(cell).parts)
    )


def _load(content: bytes) -> Any:
    """The value of a YAML text, by the fastest loader that is safe for it."""
    is_flat = len(content) <= LARGEST and sum(map(content.count, NESTING)) <= DEEPEST
    return yaml.load(
        content.decode(),
        Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader) if is_flat else yaml.SafeLoader,
    )


def settings_digest(key: str, config: Mapping[str, Any]) -> str:
    """The digest of a cell's settings, in whatever order. Raises ValueError, TypeError for what
    JSON does not have."""
    return digest_of(key, json_text(dict(sorted(config.items()))).encode())


def read_config(path: Path, content: bytes) -> dict[str, Any] | None:
    """The configuration of a cell.yaml with this content, without its schema and digest; None for
    an empty file. Raises StoreError for anything else, for another schema, and where it was changed
    since it was written."""
    try:
        config = _load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{path} is not YAML ({one_line(error)}): remove it to write it again"
        ) from error
    if config is None:
        return None
    if not isinstance(config, dict):
        raise StoreError(f"{path} is no configuration: remove it to write it again")
    if (schema := config.pop("schema", None)) != SCHEMA:
        raise StoreError(
            f"{path}: schema {schema}: this version reads schema {SCHEMA}; use the version that "
            "wrote it"
        )
    digest = config.pop("digest", None)
    try:
        is_same = digest is None or digest == settings_digest(path.parent.name, config)
    except (TypeError, ValueError):  # a value or key that no cell has
        is_same = False
    if not is_same:
        raise StoreError(
            f"{path} was changed since it was written, or copied from another cell: restore it, "
            "or remove the folder to measure the cell again"
        )
    return config


def digest_of(cell: str, text: bytes) -> str:
    """The digest of a cell's key and a JSON text."""
    return hashlib.sha256(cell.encode() + b"\n" + text).hexdigest()[:DIGITS]


def line_of(cell: str, plain: Mapping[str, Any]) -> str:
    """A line of a cell's file, its newline included. Raises ValueError for a number that JSON does
    not have."""
    text = json_text(plain)
    return f'{text[:-1]}, "digest": "{digest_of(cell, text.encode())}"}}\n'


def object_of(cell: str, line: bytes) -> bytes:
    """The object of a line as JSON, without its digest. Raises ValueError where it was changed or
    is another cell's."""
    if (parts := _LINE.fullmatch(line)) is None:
        return line
    text = parts[1] + b"}"
    if parts[2].decode() != digest_of(cell, text):
        raise ValueError("changed since it was written, or copied from another cell")
    return text


def read_json(path: Path, content: bytes) -> Any:
    """The value in a JSON file with this content; a further measurement must have a digest. Raises
    StoreError for anything else."""
    try:
        text = object_of(path.parent.name, content)
        if path.stem in RECORDS and text is content:
            raise ValueError("without its digest")
        value = from_json(text)
    except ValueError as error:
        complaint = f"{path} is not JSON as the store writes it ({one_line(error)})"
        raise StoreError(f"{complaint}: remove it to write it again") from error
    return value


def whole_lines(
    path: Path, content: bytes, parse: Callable[[bytes], Parsed], what: str
) -> Iterator[tuple[str, Parsed]]:
    """(place, record) of each line of a file with this content; `what` names a record in messages.

    A last line without its newline is still being written, or was when its process was killed: it
    is left out with a warning. Raises StoreError, naming file and line, where `parse` raises
    ValueError, and for a line that was changed or copied from another cell. `parse` gets the line's
    object as JSON."""
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


class LineCache:
    """Records of the files read last, so that one command parses each file once. A file that
    changed is read again.

    limit   bytes of files whose records are kept; the file read last is kept whatever its size
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[Path, tuple[Stamp, list[Any]]] = {}

    def read(self, path: Path, parse: Callable[[Path, bytes], list[Parsed]]) -> list[Parsed]:
        """What `parse` makes of the file's path and content; empty where there is no file."""
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return []
        stamp = status.st_mtime_ns, status.st_size, status.st_ino
        kept = self._kept.pop(path, None)
        if kept is None or kept[0] != stamp:
            kept = stamp, parse(path, content_of(path) or b"")
        self._kept[path] = kept  # the last one is the one read last
        kept_bytes = sum(size for (_, size, _), _ in self._kept.values())
        while kept_bytes > self._limit and len(self._kept) > 1:
            (_, size, _), _ = self._kept.pop(next(iter(self._kept)))
            kept_bytes -= size
        return list(kept[1])
