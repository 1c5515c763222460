"""A damaged store: the next command repairs it and prints the right numbers, or names the damage in
one line and resumes once the file is removed."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.commands import Ended, run
from tests.helpers.stores import decoded

pytestmark = pytest.mark.attack
CLOCK = (
    "samples",
    "prefill_s",
    "decode_s",
    "speed",
    "tokens_per_s",
    "phases",
    "_ms",
    "time_share",
    "verify_share",
    "accept_share",
    "prefill_share",
    "head_share",
)
"""Parts of the names of what differs from run to run: what the clock said, and the digest of the
samples file."""
SWAPPED, COPIED = "swapped with another cell's", "a copy of another cell's"


def _flip(content, draw):
    changed = bytearray(content)
    if content:  # a lock that nobody holds is empty
        changed[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _digit(content, draw):
    changed = bytearray(content)
    if digits := [index for index, byte in enumerate(content) if chr(byte).isdigit()]:
        changed[draw.choice(digits)] = ord(draw.choice("0123456789"))
    return bytes(changed)


def _without_a_line(content, draw):
    lines = content.splitlines(True)
    del lines[(at := draw.randrange(len(lines) + 1)) : at + 1]
    return b"".join(lines)


def _reordered(content, draw):
    lines = content.splitlines(True)
    return b"".join(draw.sample(lines, len(lines)))


CHANGES: Mapping[str, Callable[[bytes, random.Random], bytes]] = {
    "a bit flipped": _flip,
    "a digit changed": _digit,
    "truncated": lambda content, draw: content[: int(len(content) * draw.random())],
    "doubled": lambda content, draw: content * 2,
    "a line removed": _without_a_line,
    "lines in another order": _reordered,
    "garbage": lambda content, draw: draw.randbytes(2000),
}
CONTENTS: Mapping[str, bytes] = {
    "emptied": b"",
    "a list": b"[1, 2]\n",
    "another object": b'{"id": 3, "reason": [1], "n": "many", "earlier": 7, "own": "x", "samples": 1}\n',
    "not a number": b'{"n": NaN, "own": {"cycle": Infinity}, "reason": NaN}\n',
    "nested deeply": b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "a YAML object": b"a: !!python/object/apply:os.system ['true']\n",
    "not UTF-8": b'{"reason": "\xff\xfe"}\n',
    "with terminal escapes": b'{"reason": "\\u001b[2J\\u001b]0;owned\\u0007"}\n',
}
PLACES: Mapping[str, Callable[[Path], object]] = {
    "deleted": lambda path: None,
    "a folder": Path.mkdir,
    "a dangling link": lambda path: path.symlink_to("nowhere-at-all"),
}


def damage(name: str, path: Path, other: Path, draw: random.Random) -> None:
    """`other`: the same file of another cell."""
    content, foreign = path.read_bytes(), other.read_bytes()
    if name in PLACES:
        path.unlink()
        PLACES[name](path)
    elif name in (SWAPPED, COPIED):
        path.write_bytes(foreign)
    else:
        path.write_bytes(CONTENTS[name] if name in CONTENTS else CHANGES[name](content, draw))
    if name == SWAPPED:
        other.write_bytes(content)


def cells_of(output: Path) -> list[Path]:
    return sorted(file.parent for file in (output / "store").glob("*/cell.yaml"))


def measure(output: Path) -> Ended:
    return run(
        "bench",
        "-m",
        "method=sps,mars_sampling",
        "n=3",
        "decoding.temperature=1",
        "trace=true",
        "decoding.max_new_tokens=8",
        "summary=json",
        "engine.threads=1",
        f"output.dir={output}",
    )


def printed(ended: Ended) -> list[dict[str, Any]]:
    """The printed summaries without what the clock said."""
    rows = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
    return [
        {name: value for name, value in row.items() if not any(part in name for part in CLOCK)}
        for row in rows
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, list[dict[str, Any]]]:
    """A store all of whose cells have an environment with an earlier one, and the summaries printed
    of it."""
    output = tmp_path_factory.mktemp("whole")
    assert measure(output).status == 0
    summaries = printed(measure(output))
    files = {
        str(path.relative_to(cell))
        for cell in cells_of(output)
        for path in cell.rglob("*")
        if path.is_file()
    }
    assert files == {*FILES} - {"failure.json"}
    return output, summaries


FILES = (
    "cell.yaml",
    "environment.json",
    "failure.json",
    "profile.json",
    "samples.jsonl",
    "summary.json",
    "timed.jsonl",
    ".lock",
    "trace/00000.parquet",
)


@pytest.mark.parametrize("name", [*CHANGES, *CONTENTS, *PLACES, SWAPPED, COPIED])
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file(file, name, whole, tmp_path):
    source, right = whole
    output, draw = tmp_path / "damaged", random.Random(f"{file} {name}")
    shutil.copytree(source, output)
    if file == "failure.json":
        for cell in cells_of(output)[:2]:
            (cell / file).write_text('{"reason": "made up", "at": "2026-01-01T00:00:00+00:00"}\n')
    holders = [cell / file for cell in cells_of(output) if (cell / file).is_file()]
    paths = draw.sample(holders, min(2, len(holders)))
    damage(name, paths[0], paths[-1], draw)
    damaged = paths if name == SWAPPED else paths[:1]
    ended = measure(output)
    assert all(line.isprintable() for line in ended.err.splitlines())
    if ended.status != 0:
        assert 1 <= len(ended.errors) <= len(damaged)
        assert any(path.parent.name in ended.err for path in damaged), "it names the file"
        for path in damaged:
            if path.is_dir():
                path.rmdir()
            path.unlink(missing_ok=True)
        ended = measure(output)
        assert ended.status == 0, ended.err
    assert decoded(output / "store") == decoded(source / "store")
    for got, expected in zip(printed(ended), right, strict=True):
        assert got.keys() == expected.keys()
        for key, value in expected.items():
            # the last digits of likelihoods depend on what is decoded together
            near = pytest.approx(value, rel=1e-4, abs=1e-6) if "nll" in key else value
            assert got[key] == near, key
