"""Rows of a dataset, read with `datasets`: from the hub, from a URL, or from a local file or folder.

Every fault is one line: which file or dataset, what is wrong with it, what to give instead.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from tasks.base import TaskError

READERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}
SUFFIXES = tuple(sorted([*READERS, ".jsonl.gz", ".json.gz"]))


class Source(BaseModel):
    """Where rows come from: `path`, a local file or a folder with a file for each split, or else `files`, a URL or
    files of the hub's repository `hub`, or else that repository's own split."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str | None = None
    hub: str | None = None
    subset: str | None = None
    files: str | None = None
    revision: str | None = None
    split: str = "test"
    splits: tuple[str, ...] = ()

    def rows(self, task: str) -> Iterator[dict[str, Any]]:
        """All rows in the order of the source, fields without a value left out; `task` names them in messages. Raises
        TaskError."""
        if self.splits and self.split not in self.splits:
            raise TaskError(f"task.split={self.split}: {task} has no such split; take {' or '.join(self.splits)}")
        found = self._local(task) if self.path is not None else self._remote(task)
        return ({field: value for field, value in row.items() if value is not None} for row in found)

    def _local(self, task: str) -> Iterator[Mapping[str, Any]]:
        path = Path(self.path).expanduser()
        if not path.exists():
            raise TaskError(f"task.path={self.path}: no such file or folder; give {task}'s {self.split} data as "
                            f"{', '.join(SUFFIXES)}")
        if path.is_dir():
            where: dict[str, Any] = {"path": str(path)}
        else:
            kind = next((reader for suffix, reader in READERS.items() if suffix in path.suffixes), None)
            if kind is None:
                raise TaskError(f"task.path={self.path}: not a file of rows; give one of {', '.join(SUFFIXES)}")
            where = {"path": kind, "data_files": {self.split: str(path)}}
        # Streaming leaves no converted copy of the file behind that could go stale.
        try:
            rows = list(_loaded(**where, split=self.split, streaming=True))
        except TaskError:
            raise
        except Exception as error:  # pyarrow, datasets and the decompressors each raise their own kinds
            _find_fault(path)
            raise TaskError(f"task.path={self.path}: cannot be read: {_line(error)}") from error
        if rows and set(rows[0]) == {"text"}:  # what the reader makes of lines that are JSON but no objects
            _find_fault(path)
        if not rows:
            raise TaskError(f"task.path={self.path}: no rows; give a file with one JSON object a line")
        return iter(rows)

    def _remote(self, task: str) -> Iterator[Mapping[str, Any]]:
        where: dict[str, Any] = {"path": self.hub, "name": self.subset, "revision": self.revision}
        if self.files is not None:
            kind = "" if (self.hub or "").startswith("spaces/") else "datasets/"
            root = "" if self.hub is None else f"hf://{kind}{self.hub}/"
            reader = READERS.get(Path(self.files).suffix, "json")
            where = {"path": reader, "data_files": {self.split: root + self.files}}
        if where["path"] is None:
            raise TaskError(f"{task} has no source; give task.path=FILE or task.hub=NAME")
        try:
            return iter(_loaded(**where, split=self.split))
        except Exception as error:  # no network, no such dataset, no such split: the hub's libraries raise many kinds
            raise TaskError(f"{task}: {self.hub or self.files} cannot be loaded from the hub ({_line(error)}); "
                            "give task.path=FILE with its rows") from error


def _loaded(**where: Any) -> Iterable[Mapping[str, Any]]:
    import datasets  # seconds that only a task with data should cost

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what it logs is in the error too
    datasets.disable_progress_bars()
    return datasets.load_dataset(**where)


def _find_fault(path: Path) -> None:
    """Name the first line of a JSONL file that is no JSON object. Raises TaskError; returns when every line is one."""
    if not path.is_file() or ".jsonl" not in path.suffixes:
        return
    opened = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opened(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and not isinstance(found := json.loads(line), dict):
                    raise TaskError(f"{path}, line {number}: must be a JSON object, got {type(found).__name__}")
    except json.JSONDecodeError as error:
        raise TaskError(f"{path}, line {number}: not valid JSON ({error.msg}, column {error.colno})") from error
    except (UnicodeDecodeError, OSError, EOFError) as error:
        raise TaskError(f"{path}: cannot be read as UTF-8 text: {_line(error)}") from error
    if not path.stat().st_size or number == 0:
        raise TaskError(f"{path}: no rows; give a file with one JSON object a line")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
