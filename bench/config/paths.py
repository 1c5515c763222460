"""Where the project lies."""

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


LONGEST_SOCKET_FOLDER = 40
"""Bytes of a folder in which other programs can make sockets: the kernel takes paths of 107 bytes,
and Ray's begin with 62 of its own."""
SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")


def socket_folder() -> str:
    """The folder for temporary files, or a shorter one where TMPDIR is too long for sockets, as
    that of a cluster's job may be."""
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) <= LONGEST_SOCKET_FOLDER:
        return folder
    return next((short for short in SHORT_FOLDERS if os.access(short, os.W_OK)), folder)


def portable(plain: Any) -> Any:
    """Plain data with the paths in its texts relative to the checkout where they lie in it."""
    if isinstance(plain, dict):
        return {key: portable(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [portable(value) for value in plain]
    return plain.replace(f"{PROJECT}/", "") if isinstance(plain, str) else plain


def shown(text: str) -> str:
    """A text for people to read, with paths relative to the checkout or to the user's cache,
    `~/.cache`."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(portable(text)).replace(f"{cache}/", "~/.cache/")


def command_line(argv: list[str]) -> list[str]:
    """`python -m bench …` for a program of the checkout; other words with their paths as
    `shown`."""
    program = Path(argv[0]) if argv else Path()
    if program.suffix != ".py" or not program.is_relative_to(PROJECT):
        return list(map(shown, argv))
    module = ".".join(
        part for part in program.relative_to(PROJECT).with_suffix("").parts if part != "__main__"
    )
    return ["python", "-m", module, *map(shown, argv[1:])]
