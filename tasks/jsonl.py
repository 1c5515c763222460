"""Read JSONL files, one JSON object a line. Every error is one line that names the file and the line number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tasks.base import TaskError

Row = TypeVar("Row", bound=BaseModel)


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
    """The value of a JSON text, read with these options of `json.loads`. Raises TaskError; `place` names, of a line of
    the text from 1, where it stands."""
    try:
        return json.loads(text, **options)
    except json.JSONDecodeError as error:
        raise TaskError(f"{place(error.lineno)}: not valid JSON ({error.msg}, column {error.colno})") from error
    except ValueError as error:  # an integer of thousands of digits
        raise TaskError(f"{place(1)}: not valid JSON ({error})") from error
    except RecursionError:
        raise TaskError(f"{place(1)}: not valid JSON (nested too deeply)") from None


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
