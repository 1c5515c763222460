"""Data and files of a page: inside the page, or in a folder beside it where the page would become too large."""

from __future__ import annotations

import base64
import mimetypes
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from results.store.json_text import json_text

MOST_BYTES = 3_000_000
"""A page that would be larger keeps its data and its large files in a folder."""
LARGE = 200_000
"""Bytes of a file, or of a drawing in the page, that such a page does not hold."""
FOLDER = "index_parts"
_IN_SCRIPT = {mark: f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


def script_json(data: Any) -> str:
    """JSON that can neither end a <script> nor start another: `<`, `>` and `&` are escaped."""
    text = json_text(data)
    for mark, escape in _IN_SCRIPT.items():  # `str.translate` looks up every character
        text = text.replace(mark, escape)
    return text


def embedded_size(path: Path) -> int:
    """Bytes that a file takes inside a page."""
    return path.stat().st_size * 4 // 3


class Holder:
    """Holds what belongs to a page: inside it or, where that would take too many bytes, in <folder>/index_parts/. Files
    of an earlier page are removed there."""

    def __init__(self, folder: Path, size: int) -> None:
        """`size`: bytes of a page that holds everything."""
        self.folder, self.beside = folder / FOLDER, size > MOST_BYTES
        if self.folder.exists():
            for old in self.folder.iterdir():
                old.unlink()
        if self.beside:
            self.folder.mkdir(parents=True, exist_ok=True)

    def elements(self, texts: Mapping[str, str]) -> Iterator[Markup]:
        """The elements that hold the parts, name -> JSON, in the page. In the folder each is a script, which the page's
        own loads when it needs it; the page then holds the folder's name."""
        if not self.beside:
            for name, text in texts.items():
                yield Markup('<script type="application/json" data-part="{}">{}</script>').format(name, Markup(text))
            return
        for name, text in texts.items():  # thousands of files: not one by one onto the disk
            script = f"leeway.part({script_json(name)},{text});\n"
            (self.folder / f"{file_name(name)}.js").write_text(script, encoding="utf-8")
        yield Markup('<script type="application/json" data-folder="{}">{{}}</script>').format(FOLDER)

    def is_too_large(self, size: int) -> bool:
        """Whether the page should not hold something of so many bytes."""
        return self.beside and size > LARGE

    def link(self, path: Path) -> str:
        """What the page links to: the file itself as data, so that it travels with the page; a large one, where there
        is a folder, in there."""
        if self.is_too_large(path.stat().st_size):
            shutil.copyfile(path, self.folder / path.name)
            return f"{FOLDER}/{path.name}"
        kind = mimetypes.guess_type(path.name)[0] or "text/plain"
        return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def file_name(part: str) -> str:
    """A part's name as a file's: anything but letters, digits, `.` and `-` becomes `_`."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", part)
