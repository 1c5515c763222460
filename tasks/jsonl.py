"""Read JSONL files, one JSON object a line. Every error is one line that names the file and the line number."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tasks.base import TaskError

Row = TypeVar("Row", bound=BaseModel)
_BEFORE, _BETWEEN = re.compile(r"[\s\[]*"), re.compile(r"[\s,]*")


def read_rows(path: str | Path, row: type[Row]) -> list[tuple[int, Row]]:
    """All rows of a file as (line number from 1, row), blank lines left out. Raises TaskError."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise TaskError(f"task.path={path}: {'is a folder' if file.is_dir() else 'no such file'}; give a JSONL file")
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")  # some editors write a byte order mark
    except (UnicodeDecodeError, OSError) as error:
        raise TaskError(f"{path}: cannot be read as UTF-8 text: {error}") from error
    rows = [(number, _parse(path, number, line, row)) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows:
        raise TaskError(f"{path}: no rows; give a JSONL file with one JSON object a line")
    return rows


def parse_json(text: str, place: Callable[[int], str], **options: Any) -> Any:
    """The value of a JSON text, read with these options of `json.loads`. Raises TaskError, also for a key that one
    object has twice; `place` names, of a line of the text from 1, where it stands."""
    try:
        return json.loads(text, object_pairs_hook=_object, **options)
    except _Repeated as error:
        line = _line_of_repeated(text, options)
        raise TaskError(f"{place(line)}: the key {str(error)[:60]!r} is given twice; give it once") from None
    except json.JSONDecodeError as error:
        raise TaskError(f"{place(error.lineno)}: not valid JSON ({error.msg}, column {error.colno})") from error
    except ValueError as error:  # an integer of thousands of digits
        raise TaskError(f"{place(1)}: not valid JSON ({error})") from error
    except RecursionError:
        raise TaskError(f"{place(1)}: not valid JSON (nested too deeply)") from None


class _Repeated(ValueError):
    """A key that one object has twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises _Repeated."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Repeated(key)
        found[key] = value
    return found


def _line_of_repeated(text: str, options: Mapping[str, Any]) -> int:
    """The line on which the row with a repeated key begins, of a text that is a row or a list of them."""
    decoder, at = json.JSONDecoder(object_pairs_hook=_object, **options), _end(_BEFORE, text, 0)
    with suppress(_Repeated):
        while True:
            at = _end(_BETWEEN, text, decoder.raw_decode(text, at)[1])
    return text.count("\n", 0, at) + 1


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _parse(path: str | Path, number: int, line: str, row: type[Row]) -> Row:
    data = parse_json(line, lambda _: f"{path}, line {number}")
    if not isinstance(data, dict):
        raise TaskError(f"{path}, line {number}: must be a JSON object, got {type(data).__name__}")
    try:
        return row.model_validate(data)
    except ValidationError as error:
        raise TaskError(f"{path}, line {number}: {_complaints(error)}") from error


def _complaints(error: ValidationError) -> str:
    """Pydantic's complaints about one row, in one line."""
    complaints = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"])
        text = "missing" if item["type"] == "missing" else item["msg"].removeprefix("Value error, ")
        complaints.append(f"{field}: {text}" if field else text)
    return " ".join("; ".join(complaints).split())
