"""Landlock: which folders may be read, which written (https://docs.kernel.org/userspace-api/landlock.html)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_PR_SET_NO_NEW_PRIVS = 38
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """The version of the kernel's Landlock, 0 where it has none."""
    return max(0, int(_libc.syscall(_CREATE, None, 0, 1)))


def confine(readable: Iterable[str], writable: Iterable[str]) -> int:
    """Allow reading below `readable` and all but execution below `writable`, nothing else: no TCP (version 4), no
    signals to processes outside (version 6). Paths that do not exist are skipped. The version in force, 0 for none.

    Raises OSError."""
    if not (known := version()):
        return 0
    rights = 13 + (known >= 2) + (known >= 3) + (known >= 5)
    handled = (1 << rights) - 1
    attributes = struct.pack("=Q", handled)
    if known >= 4:
        attributes += struct.pack("=Q", 0b11)
    if known >= 6:
        attributes += struct.pack("=Q", 0b11)
    ruleset = _asked(_libc.syscall(_CREATE, attributes, len(attributes), 0))
    read = _READ_FILE | _READ_DIR
    for paths, access in ((readable, read), (writable, handled & ~_EXECUTE)):
        for path in paths:
            _allow(ruleset, path, access & handled)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _asked(_libc.syscall(_RESTRICT, ruleset, 0))
    os.close(ruleset)
    return known


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH)
    except OSError:
        return
    if not os.path.isdir(path):
        access &= _WRITE_FILE | _READ_FILE | _TRUNCATE
    try:
        _asked(_libc.syscall(_ADD, ruleset, 1, struct.pack("=Qi", access, place), 0))
    finally:
        os.close(place)


def _asked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return answer
