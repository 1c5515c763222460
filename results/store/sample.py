"""The records of samples.jsonl: what the decoding of one prompt gave, or why it failed. No clock is in them."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from results.store.errors import StoreError, first_fault
from results.store.json_text import json_text

log = logging.getLogger(__name__)
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
CONTENTS = 3
"""Files whose bytes are kept: samples of a cell and of its twin, and its timed prompts."""
OMITTED: dict[str, Any] = {"flags": {}, "group": None}
"""Fields that a line leaves out at these values."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One decoded prompt. Lists are one entry per turn, or per draft–verify cycle over all turns.

    id             the prompt's id, unique within its cell
    output_ids     emitted tokens, all turns, cut behind the end
    text           the answers of all turns, separated by an empty line
    texts          the answer of each turn
    turn_tokens    emitted tokens of each turn
    committed      tokens committed in each cycle, the correction or bonus token included
    accepted       draft tokens accepted in each cycle
    relaxed        emitted draft tokens that the lossless test rejects with the same random numbers and that are not the
                   target's argmax
    greedier       emitted draft tokens that the lossless test rejects although they are the target's argmax
    drafted        tokens proposed where the draft is pruned, else 0
    pruned         drafted tokens dropped before verification
    finish         why each turn ended: "eos", "length", …
    score          the task's score in [0, 1]; None where the task has none
    answer         what the task extracted from the text
    details        the task's further scores, by name
    seed           the seed of the cell
    nll            −log p(token) under the raw target, nats, summed over the emitted tokens; None where not computed
    prompt_tokens  tokens of the prompt, all turns
    flags          how often each flag of the rule was set on an emitted token
    group          the item that several samples answer; None where a sample is an item of its own
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    id: str
    output_ids: list[int]
    text: str
    texts: list[str]
    turn_tokens: list[int]
    committed: list[int]
    accepted: list[int]
    relaxed: int
    greedier: int
    drafted: int
    pruned: int
    finish: list[str]
    score: float | None
    answer: str | None
    details: dict[str, float]
    seed: int
    nll: float | None
    prompt_tokens: int
    flags: dict[str, int] = field(default_factory=dict)
    group: str | None = None

    @property
    def item(self) -> str:
        """The item that this sample answers: samples of one item depend on one another."""
        return self.id if self.group is None else self.group


@dataclass(frozen=True, slots=True)
class FailedSample:
    """A prompt that could not be decoded or scored, and the reason in one line."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    id: str
    error: str


Record = Sample | FailedSample
Parsed = TypeVar("Parsed")
_SAMPLE, _FAILED = TypeAdapter(Sample), TypeAdapter(FailedSample)


def to_line(record: Record) -> bytes:
    """One line of samples.jsonl, its newline included. Raises ValueError for a number that JSON does not have."""
    plain = {name: value for name, value in asdict(record).items() if name not in OMITTED or value != OMITTED[name]}
    return (json_text(plain) + "\n").encode()


def from_line(line: bytes) -> Record:
    """The record of one line. Raises ValueError, one line, for anything else."""
    try:
        return _SAMPLE.validate_json(line)
    except ValidationError as invalid:
        try:
            return _FAILED.validate_json(line)
        except ValidationError:
            raise ValueError(first_fault(invalid)) from None


def read_records(path: Path, content: bytes) -> list[Record]:
    """The records of a samples file with this content: one per prompt, in the order first written; a later line of a
    prompt replaces a failed one. Raises StoreError, naming file and line, for a whole line that is no record."""
    records: dict[str, Record] = {}
    for where, record in whole_lines(path, content, from_line, "sample"):
        if isinstance(records.get(record.id), Sample):
            raise StoreError(f"{where} repeats prompt {record.id!r}, which is already measured: remove the line")
        records[record.id] = record
    return list(records.values())


def whole_lines(path: Path, content: bytes, parse: Callable[[bytes], Parsed],
                what: str) -> Iterator[tuple[str, Parsed]]:
    """(place, record) of each line of a file with this content; `what` names a record in messages.

    A last line without its newline is still being written, or was when its process was killed: it is left out with a
    warning. Raises StoreError, naming file and line, where `parse` raises ValueError."""
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        where = f"{path} line {number}"
        if not line.endswith(b"\n"):
            log.warning("%s is unfinished and left out; its prompt will be decoded again", where)
            return
        try:
            record = parse(line)
        except ValueError as error:
            complaint = f"{where} is not a {what} ({error})"
            raise StoreError(f"{complaint}: remove the line to decode its prompt again") from error
        yield where, record


class LineCache:
    """Records of the files read last, so that one command reads each file once. A file that changed is read again.

    limit   bytes of files whose records are kept; the file read last is kept whatever its size
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: OrderedDict[Path, tuple[tuple[int, int], list[Any]]] = OrderedDict()
        self._mentioned: set[Path] = set()
        self._contents: OrderedDict[Path, tuple[tuple[int, int], bytes]] = OrderedDict()
        self._digests: dict[tuple[Path, int], tuple[tuple[int, int], str]] = {}

    def read(self, path: Path, parse: Callable[[Path, bytes], list[Parsed]]) -> list[Parsed]:
        """What `parse` makes of the file's path and content; empty where there is no file."""
        if (stamp := _stamp(path)) is None:
            return []
        kept = self._kept.get(path)
        if kept is None or kept[0] != stamp:
            kept = self._kept[path] = stamp, parse(path, self.content(path))
        self._kept.move_to_end(path)
        while len(self._kept) > 1 and sum(size for (_, size), _ in self._kept.values()) > self.limit:
            self._kept.popitem(last=False)
        return list(kept[1])

    def content(self, path: Path) -> bytes:
        """The bytes of a file; empty where there is none. Those of the last files are kept, to be hashed and parsed."""
        if (stamp := _stamp(path)) is None:
            return b""
        kept = self._contents.get(path)
        if kept is None or kept[0] != stamp:
            kept = self._contents[path] = stamp, path.read_bytes()
        self._contents.move_to_end(path)
        while len(self._contents) > CONTENTS:
            self._contents.popitem(last=False)
        return kept[1]

    def is_first_mention(self, path: Path) -> bool:
        """Whether a message about this file was not given before."""
        known = path in self._mentioned
        self._mentioned.add(path)
        return not known

    def sha256(self, path: Path, length: int) -> str | None:
        """The SHA-256 of a file's first `length` bytes, computed again only when the file has changed; None where it is
        shorter or missing."""
        stamp = _stamp(path)
        if stamp is None or stamp[1] < length:
            return None
        known = self._digests.get((path, length))
        if known is None or known[0] != stamp:
            digest = hashlib.sha256(memoryview(self.content(path))[:length]).hexdigest()
            known = self._digests[path, length] = stamp, digest
        return known[1]


def _stamp(path: Path) -> tuple[int, int] | None:
    """Time of the last change in ns and size in bytes; None where there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size
