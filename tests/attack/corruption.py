"""A damaged store: the next command repairs it and prints the right numbers, or names the damage in one line."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.attack import warm
from tests.attack.part import Field, Trial
from tests.attack.stores import Decoded, decoded, difference

LIMIT = 120.0
CLOCK = ("samples", "prefill_s", "decode_s", "speed", "tokens_per_s", "efficiency", "roofline", "phases", "_ms",
         "time_share", "verify_share", "accept_share", "prefill_share", "head_share", "retimed", "stalled")
"""Parts of the names of what differs from run to run: what the clock said, and the digest of the samples file."""
SWAPPED = "swapped with another cell's"
Damage = Callable[[Path, Path, random.Random], object]
"""Damages a file; the second path is the same file of another cell."""


def _flip(path: Path, other: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _digit(path: Path, other: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    digits = [index for index, byte in enumerate(content) if chr(byte).isdigit()]
    if digits:
        content[draw.choice(digits)] = ord(draw.choice("0123456789"))
    path.write_bytes(content)


def _truncate(path: Path, other: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[:draw.randrange(path.stat().st_size)])


def _without_a_line(path: Path, other: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines.pop(draw.randrange(len(lines)))
    path.write_bytes(b"".join(lines))


def _shuffled(path: Path, other: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(draw.sample(lines, len(lines))))


def _swapped(path: Path, other: Path, draw: random.Random) -> None:
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def _folder(path: Path, other: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _dangling(path: Path, other: Path, draw: random.Random) -> None:
    path.unlink()
    path.symlink_to("nowhere-at-all")


def _holding(content: bytes) -> Damage:
    return lambda path, other, draw: path.write_bytes(content)


DAMAGES: Mapping[str, Damage] = {
    "a bit flipped": _flip,
    "a digit changed": _digit,
    "truncated": _truncate,
    "deleted": lambda path, other, draw: path.unlink(),
    "doubled": lambda path, other, draw: path.write_bytes(path.read_bytes() * 2),
    "a line removed": _without_a_line,
    "lines in another order": _shuffled,
    SWAPPED: _swapped,
    "a copy of another cell's": lambda path, other, draw: path.write_bytes(other.read_bytes()),
    "garbage": lambda path, other, draw: path.write_bytes(draw.randbytes(2000)),
    "emptied": _holding(b""),
    "zeros": _holding(bytes(500)),
    "an empty object": _holding(b"{}\n"),
    "a list": _holding(b"[1, 2]\n"),
    "null": _holding(b"null\n"),
    "a number": _holding(b"3\n"),
    "a text": _holding(b'"text"\n'),
    "another object": _holding(b'{"id": 3, "reason": [1], "n": "many", "earlier": 7, "own": "x", "samples": 1}\n'),
    "not a number": _holding(b'{"n": NaN, "own": {"cycle": Infinity}, "reason": NaN}\n'),
    "nested deeply": _holding(b"[" * 100_000 + b"]" * 100_000 + b"\n"),
    "a YAML object": _holding(b"a: !!python/object/apply:os.system ['true']\n"),
    "not UTF-8": _holding(b'{"reason": "\xff\xfe"}\n'),
    "with terminal escapes": _holding(b'{"reason": "\\u001b[2J\\u001b]0;owned\\u0007"}\n'),
    "a folder": _folder,
    "a dangling link": _dangling,
}


def trials(field: Field) -> Iterator[Trial]:
    """Every damage to every file of a cell, in random order."""
    whole = field.folder / "whole"
    ended = _start(whole, field.folder).ended(LIMIT)
    if ended.status != 0:
        raise RuntimeError(f"status {ended.status} with an empty store: {ended.err[-300:]}")
    again = _start(whole, field.folder).ended(LIMIT)  # so that every cell has an environment with an earlier one
    expected, printed = decoded(whole / "store"), _summaries(again)
    for cell in _cells(whole):
        (cell / "failure.json").write_text('{"reason": "made up", "at": "2026-01-01T00:00:00+00:00"}\n')
    found = [(str(path.relative_to(cell)), path) for cell in _cells(whole) for path in cell.rglob("*")
             if path.is_file()]
    empty = {file for file, path in found if not path.stat().st_size}  # a lock that nobody holds
    kinds = [(file, name) for file in sorted(dict(found)) for name in DAMAGES
             if not (file in empty and DAMAGES[name] in (_flip, _truncate, _without_a_line))]
    for file, name in field.draw.sample(kinds, len(kinds)):
        output = field.folder / "damaged"
        shutil.copytree(whole, output)
        holders = [cell for cell in _cells(output) if (cell / file).is_file()]
        cells = field.draw.sample(holders, min(2, len(holders)))
        for cell in _cells(output):
            if file != "failure.json" or cell not in cells:
                (cell / "failure.json").unlink()
        DAMAGES[name](cells[0] / file, cells[-1] / file, field.draw)
        damaged = [cell / file for cell in (cells if name == SWAPPED else cells[:1])]
        yield Trial(f"{file}: {name}", _fault(output, damaged, field.folder, expected, printed))
        warm.remove(output)


def _cells(output: Path) -> list[Path]:
    return sorted(file.parent for file in (output / "store").glob("*/cell.yaml"))


def _start(output: Path, folder: Path) -> warm.Running:
    return warm.start(["bench", "-m", "method=sps,mars_sampling", "n=3", "decoding.temperature=1", "trace=true",
                       "decoding.max_new_tokens=8", "summary=json", "engine.threads=1", f"output.dir={output}"],
                      folder / "log")


def _fault(output: Path, damaged: Sequence[Path], folder: Path, expected: Decoded,
           printed: list[dict[str, Any]]) -> str:
    """What is wrong with the answer to a damage: first as it is, then after the damaged files are removed."""
    ended = _start(output, folder).ended(LIMIT)
    if fault := _unclear(ended, damaged):
        return fault
    if ended.status == 0:
        return _wrong(output, ended, expected, printed)
    for path in damaged:
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
    ended = _start(output, folder).ended(LIMIT)
    if ended.status != 0:
        return f"status {ended.status} after the file was removed: {' / '.join(ended.errors)[:300]}"
    return _wrong(output, ended, expected, printed)


def _unclear(ended: warm.Ended, damaged: Sequence[Path]) -> str:
    if ended.status is None or ended.traceback:
        return f"status {ended.status}: {(ended.err.splitlines() or ['no end'])[-1]}"
    if not all(line.isprintable() for line in ended.err.splitlines()):
        return f"not printable: {ended.err[:200]!r}"
    if ended.status != 0 and not 1 <= len(ended.errors) <= len(damaged):
        return f"status {ended.status}, {len(ended.errors)} lines: {' / '.join(ended.errors)[:300]}"
    if ended.status != 0 and not any(path.parent.name in ended.err for path in damaged):
        return f"does not name the file: {ended.err[:300]}"
    return ""


def _wrong(output: Path, ended: warm.Ended, expected: Decoded, printed: list[dict[str, Any]]) -> str:
    """The first thing that a command of status 0 stored or printed wrong."""
    if fault := difference(decoded(output / "store"), expected):
        return fault
    for got, right in zip(_summaries(ended), printed, strict=True):
        if other := [f"{name} {got.get(name)}, not {right.get(name)}" for name in {**got, **right}
                     if not _same(name, got.get(name), right.get(name))]:
            return f"printed {', '.join(other)[:200]}"
    return ""


def _same(name: str, got: Any, right: Any) -> bool:
    """Whether a printed value is right. The last digits of likelihoods depend on what is decoded together."""
    if "nll" in name and got is not None and right is not None:
        return bool(np.allclose(got, right, rtol=1e-4, atol=1e-6))
    return bool(got == right)


def _summaries(ended: warm.Ended) -> list[dict[str, Any]]:
    """The printed summaries without what the clock said."""
    rows = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
    return [{name: value for name, value in row.items() if not any(part in name for part in CLOCK)} for row in rows]
