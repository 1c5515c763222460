"""Rows of a dataset: from the hub, from a URL, or from a local file or folder.

Local JSON is read verbatim. Everything else is read with `datasets`, which guesses types: it turns
a text that looks like a date into a date, and that into another text.

Every error is one line: which file or dataset, what is wrong with it, what to give instead.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import model_validator

from tasks.base import DataMissing, LocalFile, StrictModel, TaskError

DATA = Path(__file__).parent / "data"
"""The rows that are shipped: see its ATTRIBUTION.md."""
READERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}
HEX_DIGITS = 64
"""Of a SHA-256."""
Numbered = tuple[int, Mapping[str, Any]]
SUFFIXES = tuple(sorted([*READERS, ".jsonl.gz", ".json.gz"]))


class RowSource(StrictModel):
    """Where rows come from: `path`, a local file or a folder with a file for each split, or else
    `files`, a URL or files of the hub's repository `hub`, or else that repository's own split.
    `hub` may be a folder with a mirror of the repository."""

    path: LocalFile | None = None
    hub: str | None = None
    subset: str | None = None
    files: str | tuple[str, ...] | None = None
    revision: str | None = None
    split: str = "test"
    splits: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _somewhere(self) -> RowSource:
        if self.path is None and self.hub is None and self.files is None:
            raise ValueError("has no source; give task.path=FILE or task.hub=NAME")
        return self

    def rows(self, task: str, key: str = "task.path") -> Iterator[dict[str, Any]]:
        """All rows in the order of the source, fields without a value left out. In messages `task`
        names the rows, and `key` is what `path` was given as. Raises TaskError."""
        if self.splits and self.split not in self.splits:
            raise TaskError(
                f"task.split={self.split}: {task} has no such split; take "
                f"{' or '.join(self.splits)}"
            )
        rows = self._remote(task) if self.path is None else iter(self._local(self.path, task, key))
        return ({field: value for field, value in row.items() if value is not None} for row in rows)

    def _local(self, path: Path, task: str, key: str) -> list[dict[str, Any]]:
        if not path.exists():
            wanted = f"{task}'s {self.split} data" if self.splits else task
            raise DataMissing(
                f"{key}={self.path}: no such file or folder; give {wanted} as {', '.join(SUFFIXES)}"
            )
        files = self._files(path, key) if path.is_dir() else [path]
        if pipe := next((file for file in files if not file.is_file()), None):
            raise TaskError(
                f"{key}={self.path}: {pipe.name} is no regular file; give one of "
                f"{', '.join(SUFFIXES)}"
            )
        kind = _reader(files[0])
        if kind is None or (
            kind != "json" and any(file.suffix not in (".gz", *READERS) for file in files)
        ):
            raise TaskError(
                f"{key}={self.path}: not a file of rows; give one of {', '.join(SUFFIXES)}"
            )
        if kind == "json":
            rows = [row for file in files for row in _json_rows(file)]
        else:
            # Streaming leaves no converted copy of the file behind that could go stale.
            for file in files if kind == "csv" else ():
                self._read(key, partial(_check_csv, file, key))
            where = {"path": kind, "data_files": {self.split: list(map(str, files))}}
            rows = self._read(
                key,
                lambda: list(_datasets().load_dataset(**where, split=self.split, streaming=True)),
            )
        if not rows:
            raise TaskError(f"{key}={self.path}: no rows; give a file with one JSON object a line")
        return rows

    def _files(self, folder: Path, key: str) -> list[Path]:
        """The files of a folder that `datasets` takes for the split. Raises TaskError."""
        splits = self._read(
            key, lambda: _datasets().load_dataset_builder(str(folder)).config.data_files
        )
        if self.split not in splits:
            raise TaskError(
                f"task.split={self.split}: {self.path} has no such split; take "
                f"{' or '.join(map(str, splits))}, or name a file in it {self.split}.jsonl"
            )
        return [Path(file) for file in splits[self.split]]

    def _read(self, key: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except TaskError:
            raise
        # pyarrow, datasets and the decompressors each raise their own kinds
        except Exception as error:
            raise TaskError(f"{key}={self.path}: cannot be read: {_line(error)}") from error

    def _remote(self, task: str) -> Iterator[Mapping[str, Any]]:
        where: dict[str, Any] = {"path": self.hub, "name": self.subset, "revision": self.revision}
        if self.files is not None:
            kind = "" if (self.hub or "").startswith("spaces/") else "datasets/"
            root = "" if self.hub is None else f"hf://{kind}{self.hub}/"
            if self.hub is not None and Path(self.hub).is_dir():
                root = f"{self.hub}/"
            files = [self.files] if isinstance(self.files, str) else self.files
            reader = READERS.get(Path(files[0]).suffix, "json")
            where = {"path": reader, "data_files": {self.split: [root + file for file in files]}}
        try:
            return iter(_datasets().load_dataset(**where, split=self.split))
        # no network, no such dataset, no such split: the hub's libraries raise many kinds
        except Exception as error:
            raise TaskError(
                f"{task}: {self.hub or self.files} cannot be loaded from the hub ({_line(error)}); "
                "give task.path=FILE with its rows"
            ) from error


def _datasets() -> ModuleType:
    import datasets  # seconds that only a task with such data should cost

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what it logs is in the error too
    datasets.disable_progress_bars()
    return datasets


def _reader(path: Path) -> str | None:
    return next((reader for suffix, reader in READERS.items() if suffix in path.suffixes), None)


def _json_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a file: one a line, or a list of them, or a single one. Raises TaskError."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            if ".jsonl" not in path.suffixes or first.lstrip().startswith("["):
                if (whole := _whole(path, file.read())) is not None:
                    return whole
                file.seek(0)
            return [
                _object(path, number, line)
                for number, line in enumerate(file, start=1)
                if line.strip()
            ]
    except (UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise TaskError(f"{path}: cannot be read as UTF-8 text: {_line(error)}") from error


def _whole(path: Path, text: str) -> list[dict[str, Any]] | None:
    """The rows of a text that is one object or a list of them; None where it is something else.
    Raises TaskError."""
    try:
        value = parse_json(text, lambda line: f"{path}, line {line}") if text.strip() else []
    except TaskError as error:
        if getattr(error.__cause__, "msg", "") == "Extra data":  # one value a line
            return None
        raise
    rows = value if isinstance(value, list) else [value]
    return rows if all(isinstance(row, dict) for row in rows) else None


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    value = parse_json(line, lambda _: f"{path}, line {number}")
    if not isinstance(value, dict):
        raise TaskError(f"{path}, line {number}: must be a JSON object, got {type(value).__name__}")
    return value


def parse_json(text: str, place: Callable[[int], str]) -> Any:
    """The value of a JSON text; NaN and infinities are no values: "nan" must not get into a
    question. Raises TaskError, for a key given twice as well; `place` names, of a line of the text
    from 1, where it stands."""
    try:
        return json.loads(text, parse_constant=lambda _: None, object_pairs_hook=_object_of)
    except json.JSONDecodeError as error:
        raise TaskError(
            f"{place(error.lineno)}: not valid JSON ({error.msg}, column {error.colno})"
        ) from error
    except ValueError as error:  # an integer of thousands of digits
        raise TaskError(f"{place(1)}: not valid JSON ({error})") from error
    except RecursionError:
        raise TaskError(f"{place(1)}: not valid JSON (nested too deeply)") from None


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError for a key that is given twice: which value was meant?"""
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in content if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return content


def _check_csv(file: Path, key: str) -> None:
    """Raises TaskError for a header that names a field twice, and for a row with more fields than
    it, which a reader would take for another row."""
    csv.field_size_limit(sys.maxsize)
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8-sig", newline="") as text:
        rows = csv.reader(text)
        header = next(rows, [])
        if twice := next((name for name in header if header.count(name) > 1), None):
            raise TaskError(f"{key}={file}: its header names {twice!r} twice; give each field once")
        for number, row in enumerate(rows, start=1):
            if len(row) > len(header):
                raise TaskError(
                    f"{key}={file}, row {number}: {len(row)} fields, its header has "
                    f"{len(header)}; "
                    'a text with a comma stands in "quotes"'
                )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def in_listed_order(
    file: Path,
    rows: Iterable[Numbered],
    name_of: Callable[[int, Mapping[str, Any]], str | None],
    source: str,
) -> Iterator[Any]:
    """The rows that a file lists, in its order; of several rows with one name the first.

    A line is the name of a row (its number from 0 where it has none), or the SHA-256 of one of its
    texts with every run of white space made a single space; lines that begin with # are comments.
    Raises TaskError, one line, for a name that no row has."""
    wanted = _names(file)
    by_text = any(len(name) == HEX_DIGITS for name in wanted)
    left, by_name = set(wanted), {}
    for number, row in rows:
        texts = [value for value in row.values() if isinstance(value, str)] if by_text else []
        for name in left & {name_of(number, row) or str(number - 1), *map(text_digest, texts)}:
            by_name[name] = number, row
            left.remove(name)
        if not left:
            break
    if left:
        first = next(name for name in wanted if name in left)
        raise TaskError(
            f"task.ids={file}: {len(left)} of its {len(wanted)} rows are not in {source}, "
            f"{first} is the first; give task.path=FILE with these rows, or task.ids=null for "
            "all rows"
        )
    return (by_name[name] for name in wanted)


def text_digest(text: str) -> str:
    """SHA-256 of a text with every run of white space made a single space."""
    return sha256(" ".join(text.split()).encode()).hexdigest()


def _names(file: Path) -> list[str]:
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError as error:
        raise DataMissing(
            f"task.ids={file}: no such file; give one with the name of a row in each line"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(
            f"task.ids={file}: cannot be read as text; give a file with the name of a row in each "
            "line"
        ) from error
    names = [line for line in lines if line and not line.startswith("#")]
    if not names or len(set(names)) < len(names):
        fault = "a name stands there twice" if names else "lists no row"
        raise TaskError(f"task.ids={file}: {fault}; give the name of a row in each line, each once")
    return names
