"""Data of a page in named parts: inside the page, or as scripts in a folder beside it where they are too large."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from results.store.json_text import json_text

MOST_BYTES = 20_000_000
"""A page with larger parts keeps them in a folder."""
FOLDER = "index_parts"
_IN_SCRIPT = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


def script_json(data: Any) -> str:
    """JSON that can neither end a <script> nor start another: `<`, `>` and `&` are escaped."""
    return json_text(data).translate(_IN_SCRIPT)


def written(folder: Path, parts: Mapping[str, Any], most_bytes: int = MOST_BYTES) -> Iterator[Markup]:
    """The elements that hold the parts in the page. Parts that are too large together are written into
    <folder>/index_parts/ instead, one script each, which the page's script loads when it needs them; the page then
    holds their folder's name. Files of an earlier page are removed."""
    texts = {name: script_json(data) for name, data in parts.items()}
    beside = folder / FOLDER
    for old in beside.glob("*.js"):
        old.unlink()
    if sum(map(len, texts.values())) <= most_bytes:
        for name, text in texts.items():
            yield Markup('<script type="application/json" data-part="{}">{}</script>').format(name, Markup(text))
        return
    beside.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():  # thousands of files: not one by one onto the disk
        (beside / f"{file_name(name)}.js").write_text(f"leeway.part({script_json(name)},{text});\n", encoding="utf-8")
    yield Markup('<script type="application/json" data-folder="{}">{{}}</script>').format(FOLDER)


def file_name(part: str) -> str:
    """A part's name as a file's: anything but letters, digits, `.` and `-` becomes `_`."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", part)
