"""Check the counts in a GGUF header against the file's size, before a library allocates what they ask for.

The format: magic, version, number of tensors, number of keys; then key, type and value of each; a value is a number, a
string (length, bytes) or an array (type, length, values). Source: ggml, docs/gguf.md, version 3."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Type -> bytes of a number."""
STRING, ARRAY = 8, 9
KEY_BYTES, TENSOR_BYTES = 13, 24
"""The least that a key with its value, and a tensor's description, take."""
DEEPEST = 4
"""Levels of arrays in arrays."""


def check_counts(file: Path) -> None:
    """Raises ValueError, one line, for a header that asks for more than the file holds; OSError."""
    with file.open("rb") as content:
        _Header(content, file.stat().st_size).check()


class _Header:
    def __init__(self, content: BinaryIO, size: int) -> None:
        self.content, self.size, self.order = content, size, "<"

    def check(self) -> None:
        if self.content.read(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        if int.from_bytes(self.content.read(4), "little") & 0xFFFF == 0:  # the version, in the other byte order
            self.order = ">"
        tensors, keys = self._number("Q"), self._number("Q")
        self._expect(tensors * TENSOR_BYTES + keys * KEY_BYTES, f"{tensors} tensors and {keys} keys")
        for _ in range(keys):
            self._string()
            self._value(self._number("I"), DEEPEST)

    def _value(self, kind: int, levels: int) -> None:
        if kind == STRING:
            self._string()
        elif kind == ARRAY and levels:
            inner, count = self._number("I"), self._number("Q")
            if inner in SIZES:
                self._skip(count * SIZES[inner], f"an array of {count} numbers")
                return
            self._expect(count * 8, f"an array of {count} values")
            for _ in range(count):
                self._value(inner, levels - 1)
        elif kind in SIZES:
            self._skip(SIZES[kind], "a number")
        else:
            raise ValueError(f"a value of the unknown type {kind}" if levels else "arrays are nested too deeply")

    def _string(self) -> None:
        length = self._number("Q")
        self._skip(length, f"a text of {length} bytes")

    def _number(self, form: str) -> int:
        size = struct.calcsize(form)
        content = self.content.read(size)
        if len(content) < size:
            raise ValueError("it ends within its header")
        return int(struct.unpack(f"{self.order}{form}", content)[0])

    def _skip(self, length: int, what: str) -> None:
        self._expect(length, what)
        self.content.seek(length, 1)

    def _expect(self, length: int, what: str) -> None:
        if length > (left := self.size - self.content.tell()):
            raise ValueError(f"its header announces {what}, and {left} bytes are left")
