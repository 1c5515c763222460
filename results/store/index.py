"""An index of a store: what was read from each cell's files, valid until one of them changes.

    <root>/.index-HOST.sqlite    one row per cell; each host has its own: no lock crosses the network

It is only a cache. If a row is missing, damaged or out of date, the cell is read again; removing the index costs the
time of reading all cells once. Damaged cells are never indexed, so every command notices them. A file counts as
unchanged while its size, inode, mtime and ctime (in ns) are the same."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.store.errors import StoreError
from results.store.json_text import from_json, json_text
from results.store.sample import Sample

if TYPE_CHECKING:  # pandas is slow to import, and few commands make a frame
    import pandas as pd

    from results.store.cells import CellFolder
    from results.store.summary import Summary

log = logging.getLogger(__name__)
VERSION = 1
"""Raise it when the content of a row changes: an index of another version is rebuilt."""
FILES = ("cell.yaml", "environment.json", "samples.jsonl", "timed.jsonl", "summary.json", "failure.json")
"""What a row is read from."""
SETTLED_NS = 2_000_000_000
"""A file changed less than this before it was read could change again within one tick of the clock, unnoticed."""
BATCH = 500
"""Rows that are written in one transaction."""
LEAST = 50
"""Fewer new rows are not written: reading these cells again costs less than a second."""
MANY, MOST = 5000, 16
"""With so many cells to read, which takes seconds, each core reads its part; most processes that do."""
_TABLE = "CREATE TABLE cells (key TEXT PRIMARY KEY, stamp BLOB, entry BLOB, config BLOB, summary BLOB) WITHOUT ROWID"


@dataclass(frozen=True, slots=True)
class Entry:
    """A short record of one cell's files.

    key       its folder
    baseline  the cell of its autoregressive baseline; empty for a cell without a configuration
    batch     prompts decoded together in its timed pass
    damage    what was changed, truncated or cannot be read, in one line; if nothing can be read, only `key` is set
    complete  it has a summary and the samples that the summary covers, none of which failed
    asked     prompts that the summary covers; None: all of the task, or no summary
    answered  prompts decoded and scored
    failed    prompts that failed
    timed     prompts timed
    failure   why the last run could not finish it, or how many prompts failed; None without a failure
    identity  version of what its settings mean; None for a cell from before this was recorded
    run       the latest run: its start (`since`, ISO 8601 in UTC), the requested `prompts` and `timed` prompts, and the
              answers present at its start (`answered_before`); empty for a cell from before this was recorded
    """

    key: str
    baseline: str = ""
    batch: int = 1
    damage: str = ""
    complete: bool = False
    asked: int | None = None
    answered: int = 0
    failed: int = 0
    timed: int = 0
    failure: str | None = None
    identity: int | None = None
    run: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Content:
    """An entry with the cell's configuration and summary; empty mappings for missing files."""

    entry: Entry
    config: dict[str, Any]
    summary: dict[str, Any]


class Index:
    """The index of the store under `root`. If it cannot be used, all cells are read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.path = root / f".index-{socket.gethostname()}.sqlite"

    def entries(self, cells: Iterable[CellFolder]) -> Iterator[Entry]:
        """The entry of each of these cells, from its current files."""
        yield from (content.entry for content in self._contents(cells, "entry"))

    def contents(self, cells: Iterable[CellFolder], summaries: bool = True) -> Iterator[Content]:
        """As `entries`, with the configuration and, unless it is not wanted, the summary."""
        return self._contents(cells, "entry, config, summary" if summaries else "entry, config")

    def fill(self, cells: Sequence[CellFolder]) -> None:
        """Read the store in several processes, if the index lacks many of these cells and can be written."""
        count = min(len(os.sched_getaffinity(0)), MOST)
        if len(cells) < MANY or count == 1:
            return
        with self._opened(make=True) as database:
            if database is None or len(cells) - _rows(database) < MANY:
                return
        command = [sys.executable, "-m", "results.store.filling", str(self._root.absolute())]
        processes = [subprocess.Popen([*command, str(place), str(count)], cwd=Path(__file__).parents[2],
                                      stderr=subprocess.DEVNULL) for place in range(count)]
        try:
            for process in processes:
                process.wait()
        finally:
            for process in processes:
                process.kill()

    def _contents(self, cells: Iterable[CellFolder], columns: str) -> Iterator[Content]:
        fresh: dict[str, tuple[bytes, Content]] = {}
        least = LEAST
        with self._opened() as database:
            for cell in cells:
                now, state, changed_ns = time.time_ns(), *_state(cell)
                content = None if database is None else _known(database, cell.key, state, columns)
                if content is None:
                    content = read_content(cell)
                    if not content.entry.damage and changed_ns < now - SETTLED_NS:
                        fresh[cell.key] = state, content
                if len(fresh) == BATCH:
                    self._write(fresh)
                    fresh.clear()
                    least = 1
                yield content
        if len(fresh) >= least:
            self._write(fresh)

    def _write(self, fresh: Mapping[str, tuple[bytes, Content]]) -> None:
        """Add these rows; if the store cannot be written, its cells are read again next time."""
        rows = [(key, state, *map(_packed, (asdict(content.entry), content.config, content.summary)))
                for key, (state, content) in fresh.items()]
        with self._opened(make=True) as database:
            if database is None:
                return
            try:
                database.execute("BEGIN IMMEDIATE")
                database.executemany("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?)", rows)
                database.execute("COMMIT")
            except sqlite3.OperationalError as error:  # a full disk, for example
                log.info("%s cannot be written: %s", self.path, error)
            except sqlite3.DatabaseError as error:
                self._discard(error)

    def _discard(self, error: sqlite3.DatabaseError) -> None:
        log.warning("%s is damaged (%s): it is removed and rebuilt", self.path, error)
        self.path.unlink(missing_ok=True)

    @contextmanager
    def _opened(self, make: bool = False) -> Iterator[sqlite3.Connection | None]:
        """The database; None if it is missing or cannot be used. `make`: a missing or damaged one is created."""
        database = None
        if make or self.path.exists():
            try:
                database = _connected(self.path)
            except sqlite3.OperationalError as error:  # no locks on this file system, no right to write
                log.info("%s cannot be used: %s", self.path, error)
            except sqlite3.DatabaseError as error:
                self._discard(error)
        try:
            yield database
        finally:
            if database is not None:
                database.close()


def frame(contents: Iterable[Content]) -> pd.DataFrame:
    """One row per cell, as `Store.find` gives it. Raises StoreError for a cell that cannot be read."""
    import pandas as pd

    keys, rows = [], []
    for content in contents:
        if content.entry.damage:
            raise StoreError(content.entry.damage)
        keys.append(content.entry.key)
        rows.append(flattened({**content.config, "summary": content.summary}) | {"failure": content.entry.failure})
    return pd.DataFrame.from_records(rows, index=pd.Index(keys, name="key"))


def flattened(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        flat |= flattened(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _connected(path: Path) -> sqlite3.Connection:
    """The database of a file, of this version: another one is emptied. Raises sqlite3.DatabaseError."""
    database = sqlite3.connect(path, timeout=10, isolation_level=None)
    try:
        if database.execute("PRAGMA user_version").fetchone() != (VERSION,):
            database.execute("BEGIN IMMEDIATE")
            database.execute("DROP TABLE IF EXISTS cells")
            database.execute(_TABLE)
            database.execute(f"PRAGMA user_version = {VERSION}")
            database.execute("COMMIT")
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database


def _rows(database: sqlite3.Connection) -> int:
    """How many cells the index holds."""
    try:
        return int(database.execute("SELECT count(*) FROM cells").fetchone()[0])
    except sqlite3.DatabaseError as error:
        log.debug("rows cannot be counted: %s", error)
        return 0


def _known(database: sqlite3.Connection, key: str, state: bytes, columns: str) -> Content | None:
    """The row of a cell; None if there is none for this state of its files."""
    try:
        row = database.execute(f"SELECT {columns} FROM cells WHERE key = ? AND stamp = ?", (key, state)).fetchone()
        if row is None:
            return None
        entry, *parts = (from_json(zlib.decompress(blob)) for blob in row)  # with zlib's checksum of each
        config, summary = [*parts, {}, {}][:2]
        return Content(Entry(**entry), config, summary)
    except (sqlite3.DatabaseError, zlib.error, ValueError, TypeError) as error:
        log.debug("row of %s cannot be read: %s", key, error)
        return None


def _packed(data: dict[str, Any]) -> bytes:
    return zlib.compress(json_text(data).encode(), 1)


def stamp(cell: CellFolder) -> bytes:
    """Digest of the states of a cell's files: equal while none of them changes."""
    return _state(cell)[0]


def _state(cell: CellFolder) -> tuple[bytes, int]:
    """Digest of a cell's key and of the states of its files; the time of their last change, ns."""
    states, newest = [], 0
    for name in FILES:
        try:
            status = os.stat(f"{cell.path}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            states.append(b"-")
            continue
        newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
        states.append(struct.pack("4Q", status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns))
    return blake2b(cell.key.encode() + b"\n" + b"\n".join(states), digest_size=16).digest(), newest


def read_content(cell: CellFolder) -> Content:
    """Read all files of a cell but its traces."""
    try:
        cell.check()
        config, summary, records = cell.config() or {}, cell.summary(), cell.samples()
        answered, environment = sum(isinstance(record, Sample) for record in records), cell.environment() or {}
        run = {"since": environment["since"], **environment["run"]} if "run" in environment else {}
        entry = Entry(cell.key, str(config.get("baseline", "")), int(config.get("batch", 1)), _changed(cell, summary),
                      summary is not None and not summary.failed, None if summary is None else summary.asked, answered,
                      len(records) - answered, len(cell.timed()), cell.failure() or _failures(summary),
                      config.get("identity"), run)
    except StoreError as error:
        return Content(Entry(cell.key, damage=str(error)), {}, {})
    return Content(entry, config, {} if summary is None else summary.plain())


def _failures(summary: Summary | None) -> str | None:
    return f"{summary.failed} of {summary.failed + summary.n} prompts failed" if summary and summary.failed else None


def _changed(cell: CellFolder, summary: Summary | None) -> str:
    """What was changed or truncated in a readable cell; empty if nothing was."""
    if summary is None and (cell.path / "summary.json").exists():
        return f"{cell.path}/samples.jsonl was changed after summary.json was written"
    for name in ("samples.jsonl", "timed.jsonl"):
        if cell.ends_within_a_line(name):
            return f"{cell.path / name} ends within a line"
    return ""
