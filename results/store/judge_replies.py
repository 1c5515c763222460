"""An LLM judge's replies about one cell, one line each, kept for good and looked up by the question."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results.store.errors import StoreError
from results.store.files import append_line
from results.store.json_text import from_json
from results.store.lines import line_of, object_of


def question_key(asked: Mapping[str, Any]) -> str:
    """16 hex digits of everything that was asked: model, settings and messages, the judged answer among them."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


class JudgeReplies:
    """`verdicts.jsonl` in a cell's folder; append to it only while the cell is locked."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "verdicts.jsonl"

    def read(self) -> dict[str, str]:
        """Question key -> reply. An unfinished last line is left out. Raises StoreError for any other bad line."""
        replies: dict[str, str] = {}
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        for number, raw in enumerate(lines, start=1):
            if not raw.endswith(b"\n"):
                break
            try:
                line = from_json(object_of(self.path.parent.name, raw))
                if not isinstance(line["reply"], str):
                    raise TypeError("a reply is text")
                replies[line["key"]] = line["reply"]
            except (ValueError, KeyError, TypeError) as error:
                where = f"{self.path} line {number}"
                raise StoreError(f"{where} is not a verdict: remove the line to judge again") from error
        return replies

    def append(self, key: str, reply: str, about: Mapping[str, Any]) -> None:
        """Add one reply, with what it is about; it is on disk when this returns."""
        append_line(self.path, line_of(self.path.parent.name, {"key": key, **about, "reply": reply}).encode())
