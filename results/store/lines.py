"""The files of a cell's folder: read whole, parsed once per command; JSONL files are checked line by line."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from results.store.errors import StoreError
from results.store.seals import unsealed_line

log = logging.getLogger(__name__)
CONTENTS = 6
"""Files whose bytes are kept: samples of a cell and of its baseline, its timed prompts, configuration, environment and
summary."""
Stamp = tuple[int, int, int]
"""Time of the last change in ns, size in bytes, inode."""
Parsed = TypeVar("Parsed")
Value = TypeVar("Value")


def whole_lines(path: Path, content: bytes, parse: Callable[[bytes], Parsed],
                what: str) -> Iterator[tuple[str, Parsed]]:
    """(place, record) of each line of a file with this content; `what` names a record in messages.

    A last line without its newline is still being written, or was when its process was killed: it is left out with a
    warning. Raises StoreError, naming file and line, where `parse` raises ValueError, and for a line that was changed
    or copied from another cell. `parse` gets the line's object as JSON."""
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        where = f"{path} line {number}"
        if not line.endswith(b"\n"):
            log.warning("%s is unfinished and left out; its prompt will be decoded again", where)
            return
        try:
            record = parse(unsealed_line(path.parent.name, line))
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
        self._kept: OrderedDict[Path, tuple[Stamp, list[Any]]] = OrderedDict()
        self._kept_bytes = 0
        self._mentioned: set[Path] = set()
        self._contents: OrderedDict[Path, tuple[Stamp, bytes]] = OrderedDict()
        self._digests: dict[tuple[Path, int], tuple[Stamp, str]] = {}
        self._derived: dict[tuple[Hashable, ...], tuple[tuple[Stamp | None, ...], Any]] = {}

    def read(self, path: Path, parse: Callable[[Path, bytes], list[Parsed]]) -> list[Parsed]:
        """What `parse` makes of the file's path and content; empty where there is no file."""
        if (stamp := _stamp(path)) is None:
            return []
        kept = self._kept.get(path)
        if kept is None or kept[0] != stamp:
            parsed = parse(path, self.content(path))
            self._kept_bytes += stamp[1] - (0 if kept is None else kept[0][1])
            kept = self._kept[path] = stamp, parsed
        self._kept.move_to_end(path)
        while len(self._kept) > 1 and self._kept_bytes > self.limit:
            _, (left, _) = self._kept.popitem(last=False)
            self._kept_bytes -= left[1]
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

    def derived(self, paths: Sequence[Path], what: Hashable, compute: Callable[[], Value]) -> Value:
        """What `compute` makes of the content of these files, computed again only when one of them has changed; `what`:
        all else that it depends on."""
        stamps = tuple(_stamp(path) for path in paths)
        known = self._derived.get((what, *paths))
        if known is None or known[0] != stamps:
            known = self._derived[what, *paths] = stamps, compute()
        value: Value = known[1]
        return value


def _stamp(path: Path) -> Stamp | None:
    """None where there is no file."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
