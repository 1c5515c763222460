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
import logging
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from results.store.json_text import json_text

log = logging.getLogger(__name__)
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class StoreError(RuntimeError):
    """The store cannot be read or written. The message is one line: which file, what is wrong, how to fix it."""


class Store:
    """All cells under one root folder, which is created with the first cell that is written."""

    def __init__(self, root: str | os.PathLike[str]):
        self.root = Path(root)

    def cell(self, key: str) -> CellFolder:
        """The folder of the cell `key` (the hash of its configuration), whether or not it exists yet."""
        if not KEY.fullmatch(key):
            raise StoreError(f"cell key {key!r} is not a folder name: use letters, digits, '.', '_' and '-'")
        return CellFolder(self.root / key)

    def cells(self) -> list[CellFolder]:
        """Every cell that has a configuration, sorted by key."""
        return [CellFolder(path.parent) for path in sorted(self.root.glob("*/cell.yaml"))]

    def find(self) -> pd.DataFrame:
        """One row a cell, index = key: the configuration flattened to dotted columns (`rule.theta`), the summary's
        metrics under `summary.`, and `failure` (None where there was none). Empty when nothing is stored."""
        rows = {}
        for cell in self.cells():
            summary = {f"summary.{name}": value for name, value in (cell.summary() or {}).items()}
            rows[cell.key] = {**_flat(cell.config() or {}), **summary, "failure": cell.failure()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("key")


class CellFolder:
    """One cell on disk. Reading is always allowed; appending samples needs the lock, so that one process writes."""

    def __init__(self, path: Path):
        self.path = path
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

    def append(self, sample: Mapping[str, Any]) -> None:
        """Add one prompt's line; it is on disk when this returns. Cuts off a line that a kill left unfinished."""
        if not self._locked:
            raise StoreError(f"{self.path}: samples are only appended inside `with cell.lock():`")
        line = json_text(sample) + "\n"
        with open(self.path / "samples.jsonl", "a+b") as file:
            _cut_unfinished_line(file)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def samples(self) -> list[dict[str, Any]]:
        """One sample a prompt, in the order first written. A later line of the same prompt replaces a failed one.

        A last line without its newline is still being written, or was when the process was killed: it is left out with
        a warning, and the next `append` removes it. Any other line that is not a sample raises StoreError."""
        path = self.path / "samples.jsonl"
        samples: dict[str, dict[str, Any]] = {}
        for number, raw in enumerate(path.read_bytes().splitlines(keepends=True) if path.exists() else (), start=1):
            where = f"{path} line {number}"
            if not raw.endswith(b"\n"):
                log.warning("%s is unfinished and left out; the prompt will be decoded again", where)
                break
            sample = _parse(raw, where)
            known = samples.get(sample["id"])
            if known is not None and "error" not in known:
                raise StoreError(f"{where} repeats prompt {sample['id']!r}, which is already measured: remove the line")
            samples[sample["id"]] = sample
        return list(samples.values())

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        self._write_json("summary.json", summary)

    def summary(self) -> dict[str, Any] | None:
        return self._read_json("summary.json")

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


def _parse(raw: bytes, where: str) -> dict[str, Any]:
    try:
        sample = json.loads(raw)
    except ValueError as error:
        raise StoreError(f"{where} is not JSON ({_one_line(error)}): remove it to decode the prompt again") from error
    if not isinstance(sample, dict) or not isinstance(sample.get("id"), str):
        raise StoreError(f"{where} is not a sample (an object with an 'id'): remove the line")
    return sample


def _cut_unfinished_line(file: Any) -> None:
    """Truncate a binary file, open for append, behind its last newline."""
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


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) and value else {f"{prefix}{name}": value}
    return flat


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
