"""A judge's replies about one cell: one line each, kept for good, found again by what was asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results.store.cells import append_line
from results.store.errors import StoreError
from results.store.json_text import json_text


def key_of(asked: Mapping[str, Any]) -> str:
    """16 hex digits of all that was asked: model, settings and messages. Another answer is another question."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


class Verdicts:
    """`verdicts.jsonl` in a cell's folder; write it only while the cell is locked."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "verdicts.jsonl"

    def replies(self) -> dict[str, str]:
        """Key -> reply. A last line that a kill left unfinished is left out. Raises StoreError for any other fault."""
        found: dict[str, str] = {}
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        for number, raw in enumerate(lines, start=1):
            if not raw.endswith(b"\n"):
                break
            try:
                line = json.loads(raw)
                if not isinstance(line["reply"], str):
                    raise TypeError("a reply is text")
                found[line["key"]] = line["reply"]
            except (ValueError, KeyError, TypeError) as error:
                where = f"{self.path} line {number}"
                raise StoreError(f"{where} is not a verdict: remove the line to judge again") from error
        return found

    def append(self, key: str, reply: str, about: Mapping[str, Any]) -> None:
        """Add one reply; it is on disk when this returns."""
        append_line(self.path, (json_text({"key": key, **about, "reply": reply}) + "\n").encode())
