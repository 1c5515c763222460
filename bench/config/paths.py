"""Where the project lies, a folder for sockets, and paths in what is recorded and printed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
CONF = PROJECT / "conf"
MODELS = PROJECT / "models"
TINY = MODELS / "tiny"
"""The embedded pair."""

LONGEST_SOCKET_FOLDER = 39
"""Bytes of the path of a folder in which other programs can still make sockets. The kernel takes
paths of 107 bytes; behind this folder Ray adds `/ray` and at most 64 bytes, with process numbers
of seven digits."""
SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
"""In their place, the first that can be written to."""


def socket_folder() -> str:
    """The folder for temporary files, or a shorter one where its path is too long for sockets, as
    the TMPDIR of a cluster's job may be. The long one after all where no short one can be written
    to."""
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) <= LONGEST_SOCKET_FOLDER:
        return folder
    return next((short for short in SHORT_FOLDERS if os.access(short, os.W_OK)), folder)


def portable(plain: Any) -> Any:
    """Plain data in which paths inside the checkout are relative to it, so that it means the same
    in another checkout. Paths are found anywhere in the texts of dicts and lists; keys stay."""
    if isinstance(plain, dict):
        return {key: portable(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [portable(value) for value in plain]
    return plain.replace(f"{PROJECT}/", "") if isinstance(plain, str) else plain


def shown(text: str) -> str:
    """A text for people to read: paths inside the checkout are relative to it, and those in the
    user's cache begin with `~/.cache`."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(portable(text)).replace(f"{cache}/", "~/.cache/")


def command_line(argv: list[str]) -> list[str]:
    """The words of a command as people type them, from those of `sys.argv`: `python -m bench …`
    in place of a Python file of the checkout, and paths as `shown`."""
    program = Path(argv[0]) if argv else Path()
    if program.suffix != ".py" or not program.is_relative_to(PROJECT):
        return list(map(shown, argv))
    parts = program.relative_to(PROJECT).with_suffix("").parts
    module = ".".join(part for part in parts if part != "__main__")
    return ["python", "-m", module, *map(shown, argv[1:])]
