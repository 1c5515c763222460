"""Map a function over prompts, checkpointing each result so that an interrupted run resumes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track

from bench.config.identity import digest

if TYPE_CHECKING:
    from tasks.base import Prompt


def map_resumable(work: Path, settings: dict[str, Any], prompts: Sequence[Prompt],
                  function: Callable[[Prompt], list[Any]], title: str) -> list[tuple[str, list[Any]]]:
    """Apply `function` to every prompt; returns (prompt id, result) in order. Results from earlier runs are reused.

    They are kept in `work`/<digest of settings>.jsonl: `settings` on the first line, then one result (plain JSON data)
    a line. A torn last line, left by a killed process, is dropped. Raises ValueError where the file holds other
    settings."""
    file = work / f"{digest(settings)}.jsonl"
    results = _read(file, settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        if out.tell() == 0:
            out.write(json.dumps(settings) + "\n")
        missing = [prompt for prompt in prompts if prompt.id not in results]
        for prompt in track(missing, title, console=Console(stderr=True), disable=not sys.stderr.isatty()):
            results[prompt.id] = function(prompt)
            out.write(json.dumps({"id": prompt.id, "found": results[prompt.id]}) + "\n")
            out.flush()
    return [(prompt.id, results[prompt.id]) for prompt in prompts]


def _read(file: Path, settings: dict[str, Any]) -> dict[str, list[Any]]:
    """Prompt id -> result of what `file` holds; its torn last line is cut off."""
    if not file.exists():
        return {}
    lines = file.read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]
    if len(whole) < len(lines):
        file.write_bytes(b"".join(whole))
    rows = [json.loads(line) for line in whole]
    if rows and rows[0] != settings:
        raise ValueError(f"{file}: written under other settings: {_differences(rows[0], settings)}; remove it, or give "
                         "another work=DIR")
    return {row["id"]: row["found"] for row in rows[1:]}


def _differences(before: Any, now: dict[str, Any]) -> str:
    """The settings that differ, each with both values."""
    if not isinstance(before, dict):
        return "its first line holds none"
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return ", ".join(f"{key} was {json.dumps(before.get(key))} and is {json.dumps(now.get(key))}" for key in keys)
