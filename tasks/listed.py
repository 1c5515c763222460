"""Rows that a file lists by name: the questions of a published evaluation, without their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from tasks.base import DataMissing, TaskError

HEX_DIGITS = 64
"""Of a SHA-256."""
Numbered = tuple[int, Mapping[str, Any]]


def in_listed_order(file: Path, rows: Iterable[Numbered], name_of: Callable[[int, Mapping[str, Any]], str | None],
                    source: str) -> Iterator[Any]:
    """The rows that a file lists, in its order; of several rows with one name the first.

    A line is the name of a row (its number from 0 where it has none), or the SHA-256 of one of its texts with every run
    of white space made a single space; lines that begin with # are comments. Raises TaskError, one line, for a name
    that no row has."""
    wanted = _names(file)
    by_text = any(len(name) == HEX_DIGITS for name in wanted)
    left, found = set(wanted), {}
    for number, row in rows:
        texts = [value for value in row.values() if isinstance(value, str)] if by_text else []
        for name in left & {name_of(number, row) or str(number - 1), *map(text_digest, texts)}:
            found[name] = number, row
            left.remove(name)
        if not left:
            break
    if left:
        first = next(name for name in wanted if name in left)
        raise TaskError(f"task.ids={file}: {len(left)} of its {len(wanted)} rows are not in {source}, {first} is the "
                        "first; give task.path=FILE with these rows, or task.ids=null for all rows")
    return (found[name] for name in wanted)


def text_digest(text: str) -> str:
    """SHA-256 of a text with every run of white space made a single space."""
    return sha256(" ".join(text.split()).encode()).hexdigest()


def _names(file: Path) -> list[str]:
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError as error:
        raise DataMissing(f"task.ids={file}: no such file; give one with the name of a row in each line") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"task.ids={file}: cannot be read as text; give a file with the name of a row in each "
                        "line") from error
    names = [line for line in lines if line and not line.startswith("#")]
    if not names or len(set(names)) < len(names):
        fault = "a name stands there twice" if names else "lists no row"
        raise TaskError(f"task.ids={file}: {fault}; give the name of a row in each line, each once")
    return names
