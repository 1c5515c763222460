"""The store: one folder per cell, written so that a kill at any moment loses at most the prompt
being decoded.

<root>/<key>/cell.yaml          the resolved configuration whose hash is the key
             environment.json   machine and versions of the latest run, and of the earlier ones
             samples.jsonl      one line per prompt of the quality pass
             timed.jsonl        one line per prompt of the timed pass, on disk before the next
                                method starts
             summary.json       the metrics of the cell, for other programs
             failure.json       why the cell could not be finished
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from results.store.errors import StoreError, one_line
from results.store.files import append_line, content_of, locked, remove, replace_text
from results.store.records import (
    KEY,
    RECORDS,
    SCHEMA,
    LineCache,
    from_json,
    line_of,
    read_config,
    read_json,
    settings_digest,
    whole_lines,
)
from results.store.sample import Record, Sample, Timed, read_records, read_timed, to_plain

log = logging.getLogger(__name__)
CACHE_BYTES = 64 << 20
"""Files of samples of this total size are kept parsed, so that one command reads each of them
once."""


@dataclass(eq=False)
class Store:
    """All cells under a root folder, which is created when the first cell is written. `lines`: the
    files read last."""

    root: Path
    lines: LineCache = field(default_factory=lambda: LineCache(CACHE_BYTES))

    def cell(self, key: str) -> CellFolder:
        """The folder of the cell `key`, whether or not it exists yet. Raises StoreError for a key
        that is no folder name."""
        if not KEY.fullmatch(key):
            raise StoreError(
                f"cell key {key!r} is not a folder name: use letters, digits, '.', '_' and '-'"
            )
        return CellFolder(self.root / key, self.lines)

    def cells(self) -> list[CellFolder]:
        """Every cell that has a configuration, sorted by key."""
        return [
            self.cell(path.name) for path in self.folders() if os.path.exists(f"{path}/cell.yaml")
        ]

    def folders(self) -> list[Path]:
        """Every folder that may be a cell's, sorted."""
        entries = os.scandir(self.root) if self.root.is_dir() else ()
        return [
            self.root / name
            for name in sorted(entry.name for entry in entries if entry.is_dir())
            if KEY.fullmatch(name)
        ]


class CellFolder:
    """One cell on disk. Reading is always allowed; appending samples needs the lock, so that one
    process writes.

    Every method that reads raises StoreError for a file that cannot be parsed."""

    def __init__(self, path: Path, lines: LineCache) -> None:
        self.path = path
        self._lines = lines
        self._locked = False

    @property
    def key(self) -> str:
        """The folder's name."""
        return self.path.name

    @contextmanager
    def lock(self, *, wait: bool = False) -> Iterator[CellFolder]:
        """Hold the cell for writing. The kernel drops the lock when the process dies, however it
        dies.

        Where another process holds it: wait until that one ends, and say so, or without `wait`
        raise Locked. Both name the process. Raises StoreError for a folder that cannot be written
        or locked."""
        with locked(self.path / ".lock", str(self.path), wait=wait):
            self._locked = True
            try:
                yield self
            finally:
                self._locked = False

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write cell.yaml: the schema of the cell's files, plain data in the order given, and their
        digest."""
        data = {"schema": SCHEMA, **config, "digest": settings_digest(self.key, config)}
        replace_text(
            self.path / "cell.yaml", yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
        )

    def config(self) -> dict[str, Any] | None:
        """The resolved configuration; None for a cell that was never started. Raises StoreError
        also for the cell of a later schema."""
        [config] = self._lines.read(
            self.path / "cell.yaml", lambda path, content: [read_config(path, content)]
        ) or [None]
        return None if config is None else dict(config)

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        """Record the machine and versions of this run. Records of earlier runs move to the list
        `earlier`, oldest first; `since` is the time at which a run began."""
        before = self.environment()
        earlier = [] if before is None else [*before.pop("earlier"), before]
        now = {"since": datetime.now(UTC).isoformat(timespec="seconds")}
        self._write_json("environment.json", {**now, **environment, "earlier": earlier})

    def environment(self) -> dict[str, Any] | None:
        """What `write_environment` recorded; None for a cell that was never started."""
        return self._read_json("environment.json", {"since": str, "earlier": list})

    def append(self, record: Record) -> None:
        """Add the line of one prompt; it is on disk when this returns. Cuts off a line that a kill
        left unfinished.

        Raises ValueError for a number that JSON does not have."""
        self._append("samples.jsonl", to_plain(record))

    def append_timed(self, timed: Timed) -> None:
        """Add the line of one timed prompt; as `append`."""
        self._append("timed.jsonl", {"id": timed.id, **asdict(timed)})

    def append_verdict(self, question: str, reply: str, about: Mapping[str, Any]) -> None:
        """Add a reply of an LLM judge, kept for good; `question`: a hash of all that was asked; as
        `append`."""
        self._append("verdicts.jsonl", {"key": question, **about, "reply": reply})

    def verdicts(self) -> dict[str, str]:
        """Hash of a question -> the judge's reply; as `samples`."""
        path = self.path / "verdicts.jsonl"
        lines = whole_lines(path, content_of(path) or b"", _verdict, "verdict")
        return {line["key"]: line["reply"] for _, line in lines}

    def timed(self) -> list[Timed]:
        """One record per timed prompt, in the order first written; as `samples`."""
        return self._lines.read(self.path / "timed.jsonl", read_timed)

    def samples(self) -> list[Record]:
        """One record per prompt, in the order first written. A later line of a prompt replaces one
        that failed or has no score yet.

        An unfinished last line is left out with a warning, and the next `append` removes it. Raises
        StoreError for any other line that is no record. The file is read again only when it has
        changed."""
        return self._lines.read(self.path / "samples.jsonl", read_records)

    def good_samples(self) -> list[Sample]:
        """The prompts that were decoded and scored."""
        return [record for record in self.samples() if isinstance(record, Sample)]

    def by_id(self) -> dict[str, Sample]:
        """Prompt id -> sample, of the prompts that were decoded and scored."""
        return {sample.id: sample for sample in self.good_samples()}

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json, for other programs: nothing reads it back."""
        self._write_json("summary.json", summary)

    def has_latest_summary(self) -> bool:
        """Whether no file that a summary is computed from was written after summary.json."""
        names = ("samples.jsonl", "timed.jsonl", *(f"{name}.json" for name in RECORDS))
        paths = [self.path / name for name in names]
        times = [path.stat().st_mtime_ns for path in paths if path.exists()]
        written = self.path / "summary.json"
        return written.exists() and written.stat().st_mtime_ns >= max(times, default=0)

    def write_failure(self, reason: str) -> None:
        """Record why the cell could not be finished, in one line."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self._write_json("failure.json", {"reason": one_line(reason), "at": at})

    def failure(self) -> str | None:
        """The reason of the last failed run; None where no run failed or the failure was
        cleared."""
        recorded = self._read_json("failure.json", {"reason": str})
        return None if recorded is None else one_line(recorded["reason"])

    def clear_failure(self) -> None:
        """Forget the last failed run."""
        remove(self.path / "failure.json")

    def forget_times(self) -> None:
        """Remove what the clock said, and the summaries of it; the samples stay. Raises StoreError
        without the lock."""
        self._check_locked("times are only forgotten")
        for name in ("summary.json", "timed.jsonl"):
            remove(self.path / name)

    def forget_scores(self) -> None:
        """Keep the answers and remove their scores, in one step. Raises StoreError without the
        lock."""
        self._check_locked("scores are only forgotten")
        kept = [
            replace(record, score=None, answer=None, details={}, unscored=True)
            if isinstance(record, Sample)
            else record
            for record in self.samples()
        ]
        lines = (line_of(self.key, to_plain(record)) for record in kept)
        replace_text(self.path / "samples.jsonl", "".join(lines))
        remove(self.path / "summary.json")

    def write_record(self, name: str, data: Mapping[str, Any]) -> None:
        """Write a further measurement of the cell, one of RECORDS, to <name>.json. Raises
        ValueError for another."""
        if name not in RECORDS:
            raise ValueError(f"record {name!r}: must be one of {', '.join(RECORDS)}")
        self._write_json(f"{name}.json", data)

    def check(self) -> None:
        """Raise StoreError, naming the file, if a file of this cell cannot be read."""
        for read in (self.config, self.environment, self.failure, self.samples, self.timed):
            read()

    def record(self, name: str) -> dict[str, Any] | None:
        """What `write_record` wrote to <name>.json; None where there is no such file."""
        return self._read_json(f"{name}.json")

    def _check_locked(self, rule: str) -> None:
        if not self._locked:
            raise StoreError(f"{self.path}: {rule} inside `with cell.lock():`")

    def _append(self, name: str, plain: Mapping[str, Any]) -> None:
        self._check_locked("lines are only appended")
        append_line(self.path / name, line_of(self.key, plain).encode())

    def _write_json(self, name: str, data: Mapping[str, Any]) -> None:
        replace_text(self.path / name, line_of(self.key, data))

    def _read_json(
        self, name: str, keys: Mapping[str, type] | None = None
    ) -> dict[str, Any] | None:
        """The object in a file; None where there is none. Raises StoreError where it lacks one of
        `keys`."""
        path = self.path / name
        data = None if (content := content_of(path)) is None else read_json(path, content)
        if data is not None and not (
            isinstance(data, dict)
            and all(isinstance(data.get(key), kind) for key, kind in (keys or {}).items())
        ):
            form = ", ".join(f"{key} ({kind.__name__})" for key, kind in (keys or {}).items())
            raise StoreError(
                f"{path} is no JSON object{form and ' with ' + form}: remove it to write it again"
            )
        return None if data is None else dict(data)


def _verdict(text: bytes) -> dict[str, str]:
    """Raises ValueError for what is no line of verdicts.jsonl."""
    line = from_json(text)
    if not (
        isinstance(line, dict)
        and isinstance(line.get("key"), str)
        and isinstance(line.get("reply"), str)
    ):
        raise ValueError("no key and reply")
    return line
