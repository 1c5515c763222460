"""The store: one folder a cell, written so that a kill at any moment loses at most the prompt being decoded.

    <root>/<key>/cell.yaml          the resolved configuration whose hash is the key
                 environment.json   machine and versions of the latest run, and of the earlier ones
                 samples.jsonl      one line a prompt, on disk before the next prompt starts
                 summary.json       the metrics of the whole cell; its presence says the cell is complete
                 failure.json       why the cell could not be finished
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import yaml
from pydantic import ValidationError

from results.store.errors import StoreError, first_fault
from results.store.json_text import json_text
from results.store.sample import FailedSample, Record, Sample, SampleCache, to_line
from results.store.summary import Summary

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
CACHE_BYTES = 64 << 20
"""Samples files up to this size together are kept parsed, so that one command reads each of them once."""


class Store:
    """All cells under one root folder, which is created with the first cell that is written."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._samples = SampleCache(CACHE_BYTES)

    def cell(self, key: str) -> CellFolder:
        """The folder of the cell `key` (the hash of its configuration), whether or not it exists yet."""
        if not KEY.fullmatch(key):
            raise StoreError(f"cell key {key!r} is not a folder name: use letters, digits, '.', '_' and '-'")
        return CellFolder(self.root / key, self._samples)

    def cells(self) -> list[CellFolder]:
        """Every cell that has a configuration, sorted by key."""
        return [CellFolder(path.parent, self._samples) for path in sorted(self.root.glob("*/cell.yaml"))]

    def find(self) -> pd.DataFrame:
        """One row per cell, index = key: the configuration flattened to dotted columns (`rule.theta`), the summary's
        metrics under `summary.`, and `failure` (None where there was none). Empty when nothing is stored."""
        rows = []
        for cell in self.cells():
            summary = cell.summary()
            metrics = {} if summary is None else {"summary": summary.plain()}
            rows.append({"key": cell.key, **(cell.config() or {}), **metrics, "failure": cell.failure()})
        return pd.json_normalize(rows).set_index("key") if rows else pd.DataFrame()


class CellFolder:
    """One cell on disk. Reading is always allowed; appending samples needs the lock, so that one process writes."""

    def __init__(self, path: Path, samples: SampleCache) -> None:
        self.path = path
        self._samples = samples
        self._locked = False

    @property
    def key(self) -> str:
        return self.path.name

    @contextmanager
    def lock(self) -> Iterator[CellFolder]:
        """Hold the cell for writing. The kernel drops the lock when the process dies, however it dies.

        Raises StoreError at once, naming the process, when another one holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise StoreError(f"{self.path} is being written by {holder}: wait for it, or end it first") from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            self._locked = True
            try:
                yield self
            finally:
                self._locked = False

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write cell.yaml: plain data, in the order given."""
        _replace(self.path / "cell.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))

    def config(self) -> dict[str, Any] | None:
        path = self.path / "cell.yaml"
        try:
            return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
        except yaml.YAMLError as error:
            raise StoreError(f"{path} is not YAML ({_one_line(error)}): remove it to write it anew") from error

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        """Record this run's machine and versions. What earlier runs recorded moves to the list `earlier`, oldest first;
        `since` says when each run began."""
        before = self.environment()
        earlier = [] if before is None else [*before.pop("earlier"), before]
        now = {"since": datetime.now(UTC).isoformat(timespec="seconds")}
        self._write_json("environment.json", {**now, **environment, "earlier": earlier})

    def environment(self) -> dict[str, Any] | None:
        return self._read_json("environment.json")

    def append(self, record: Record) -> None:
        """Add the line of one prompt; it is on disk when this returns. Cuts off a line that a kill left unfinished.

        Raises ValueError for a number that JSON does not have."""
        if not self._locked:
            raise StoreError(f"{self.path}: samples are only appended inside `with cell.lock():`")
        append_line(self.path / "samples.jsonl", to_line(record))

    def samples(self) -> list[Record]:
        """One record per prompt, in the order first written. A later line of a prompt replaces a failed one.

        An unfinished last line is left out with a warning, and the next `append` removes it. Raises StoreError for any
        other line that is no record. The file is read again only when it has changed."""
        return self._samples.read(self.path / "samples.jsonl")

    def good_samples(self) -> list[Sample]:
        """The prompts that were decoded and scored."""
        return [record for record in self.samples() if isinstance(record, Sample)]

    def failed_samples(self) -> list[FailedSample]:
        """The prompts that failed; they are tried again when the cell is run again."""
        return [record for record in self.samples() if isinstance(record, FailedSample)]

    def write_summary(self, summary: Summary) -> None:
        """Write summary.json, which says that the cell is complete."""
        self._write_json("summary.json", summary.plain())

    def summary(self) -> Summary | None:
        """None while the cell is not complete. Raises StoreError for a file that holds no summary."""
        path = self.path / "summary.json"
        try:
            return Summary.model_validate_json(path.read_bytes()) if path.exists() else None
        except ValidationError as error:
            raise StoreError(f"{path} is no summary ({first_fault(error)}): remove it to write it again") from error

    def write_failure(self, reason: str) -> None:
        """Say why the cell could not be finished, in one line."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self._write_json("failure.json", {"reason": _one_line(reason), "at": at})

    def failure(self) -> str | None:
        """The reason of the last failed run, None where there was none or it was cleared."""
        recorded = self._read_json("failure.json")
        return None if recorded is None else recorded["reason"]

    def clear_failure(self) -> None:
        (self.path / "failure.json").unlink(missing_ok=True)

    def write_record(self, name: str, data: Mapping[str, Any]) -> None:
        """What else was measured of the cell, in a file <name>.json of its own."""
        self._write_json(f"{name}.json", data)

    def check(self) -> None:
        """Raises StoreError, naming it, for a file of this cell that cannot be read. The samples of an unfinished cell
        are left to whoever finishes it."""
        for read in (self.config, self.environment, self.failure):
            read()
        if self.summary() is not None:
            self.samples()

    def record(self, name: str) -> dict[str, Any] | None:
        return self._read_json(f"{name}.json")

    def _write_json(self, name: str, data: Mapping[str, Any]) -> None:
        _replace(self.path / name, json_text(data, indent=1) + "\n")

    def _read_json(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        except ValueError as error:
            raise StoreError(f"{path} is not JSON ({_one_line(error)}): remove it to write it anew") from error


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file and wait until it is on disk. Cuts off what follows the file's last newline."""
    with open(path, "a+b") as file:
        _cut_unfinished_line(file)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _cut_unfinished_line(file: BinaryIO) -> None:
    """Truncate a file that is open for append behind its last newline."""
    end = position = file.seek(0, os.SEEK_END)
    while position > 0:
        start = max(0, position - 65536)
        file.seek(start)
        newline = file.read(position - start).rfind(b"\n")
        if newline >= 0:
            position = start + newline + 1
            break
        position = start
    if position < end:
        file.truncate(position)
    file.seek(0, os.SEEK_END)


def _replace(path: Path, text: str) -> None:
    """Write a whole file so that a reader sees the old one or the new one, never a part of it, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
