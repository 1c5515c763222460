"""Files from elsewhere, damaged at random: archives to merge, answers to import, GGUF models. Each is read whole or
refused in one line, and nothing is written outside the folder that the command names."""

from __future__ import annotations

import io
import json
import random
import struct
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.config.paths import PROJECT
from tests.helpers.commands import run
from tests.helpers.stores import decoded, difference, snapshot
from tests.helpers.tiny_gguf import write_gguf

attack = pytest.mark.attack
EXCHANGED = PROJECT / "tests" / "results" / "exchange_files"
Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, content: bytes = b"", **fields: Any) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def through_links(outside: Path) -> list[Member]:
    """The pattern of CVE-2025-4517: a path longer than PATH_MAX, through links."""
    part, path, members = "d" * 247, "", []
    for letter in "abcdefghijklmnop":
        members += [member(f"store/{path}{part}", type=tarfile.DIRTYPE),
                    member(f"store/{path}{letter}", type=tarfile.SYMTYPE, linkname=part)]
        path += f"{part}/"
    links = "/".join("abcdefghijklmnop")
    return [*members, member(f"store/{links}/{'l' * 254}", type=tarfile.SYMTYPE, linkname="../" * 16),
            member("store/escape", type=tarfile.SYMTYPE, linkname=f"{links}/{'l' * 254}/../../../../..{outside}"),
            member("store/escape/notes.txt", b"changed")]


MEMBERS: Mapping[str, Callable[[Path], list[Member]]] = {
    "long names through links": through_links,
    "a link and a file behind it": lambda out: [member("store/link", type=tarfile.SYMTYPE, linkname=str(out)),
                                                member("store/link/notes.txt", b"changed")],
    "a hard link": lambda out: [member("store/hard", type=tarfile.LNKTYPE, linkname=f"{out}/notes.txt"),
                                member("store/hard", b"changed")],
    "an absolute name": lambda out: [member(f"{out}/notes.txt", b"changed")],
    "a name with ..": lambda out: [member(f"store/../../../..{out}/notes.txt", b"changed"),
                                   member("store/../cell.yaml", b"a: 1")],
    "a link as a cell": lambda out: [member("store/cell-0123456789", type=tarfile.SYMTYPE, linkname=str(out)),
                                     member("store/cell-0123456789/notes.txt", b"changed")],
    "a device and a pipe": lambda out: [member("store/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
                                        member("store/pipe", type=tarfile.FIFOTYPE)],
    "control characters": lambda out: [member("store/\x1b[2J\nnotes.txt", b"x")],
    "files that no cell has": lambda out: [member("store/.git/config", b"x"), member("store/notes.md", b"x")],
    "many members": lambda out: [member(f"store/f{number}") for number in range(5000)],
    "zeros": lambda out: [member("store/zeros", bytes(30_000_000))],
    "another owner": lambda out: [member("store/own.txt", b"x", uid=1 << 20, gid=1 << 20, mode=0o4777)],
}
"""Name -> members of an archive, of which none may be written; the path is a folder of the user's."""


def flipped(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.randint(1, 20)):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


BYTES: Mapping[str, Callable[[bytes, random.Random], bytes]] = {
    "bits flipped": flipped,
    "cut short": lambda content, draw: content[:draw.randrange(len(content))],
    "a piece doubled": lambda content, draw: content[:(at := draw.randrange(len(content)))] + content[at // 2:],
    "zeros inside": lambda content, draw: content[:(at := draw.randrange(len(content)))] + bytes(600) + content[at:],
    "another beginning": lambda content, draw: draw.randbytes(40) + content,
}


@pytest.mark.parametrize("damage", ["", *(pytest.param(kind, marks=attack) for kind in BYTES)])
@pytest.mark.parametrize("name", MEMBERS)
def test_an_archive_to_merge(name: str, damage: str, measured: Path, tmp_path: Path) -> None:
    """Hostile members before or behind the cells of a store, packed in each way, then damaged."""
    outside, into, draw = tmp_path / "outside", tmp_path / "into", random.Random(f"{name} {damage}")
    outside.mkdir()
    (outside / "notes.txt").write_text("the user's own\n")
    file, mode = outside / "a.tar", draw.choice(["w", "w:gz", "w:bz2", "w:xz"])
    with tarfile.open(file, mode, format=draw.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])) as archive:
        parts = [lambda: archive.add(measured, "store"),
                 lambda: [archive.addfile(info, io.BytesIO(content)) for info, content in MEMBERS[name](outside)]]
        for add in draw.sample(parts, 2):
            add()
    if damage:
        file.write_bytes(BYTES[damage](file.read_bytes(), draw))
    before = snapshot(outside)
    ended = run("bench.merge", f"store.dir={into}", f"from={file}")
    left_alone = ended.status == 1 and all(line.startswith("left alone: ") for line in ended.errors)
    assert ended.answered or (damage and left_alone), ended.err  # a damaged cell is not merged
    assert snapshot(outside) == before
    assert not [path for path in into.rglob("*") if path.is_symlink() or path.name.startswith(".archive")]
    assert damage or not difference(decoded(into), decoded(measured))


VALUES: Mapping[str, Any] = {
    "10^400": 10 ** 400, "2^63": 1 << 63, "-1": -1, "1e308": 1e308, "a text": "x", "null": None, "true": True,
    "an empty list": [], "an object": {"a": 1}, "a list of lists": [[[]]], "0": 0, "a fraction": 0.5,
}


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (holder, key) anywhere in plain data."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in ((value, key), *places(value[key]))]


def damaged_lines(source: bytes, kind: str, draw: random.Random) -> bytes:
    """Lines of JSON with one value replaced, deeply nested, in another order, or with damaged bytes."""
    if kind in BYTES:
        return BYTES[kind](source, draw)
    lines = source.decode().splitlines()
    at = draw.randrange(len(lines))
    if kind in VALUES:
        data = json.loads(lines[at])
        holder, key = draw.choice(places(data))
        holder[key] = VALUES[kind]
        lines[at] = json.dumps(data)
    elif kind == "nested":
        levels = draw.choice([100, 900, 100_000])
        lines.insert(at, '{"id": ' + "[" * levels + "]" * levels + "}")
    else:
        lines = draw.choices(lines, k=len(lines) + 1)
    return "\n".join(lines).encode() + b"\n"


@attack
@pytest.mark.parametrize("name", ["spec_bench", "eagle"])
@pytest.mark.parametrize("kind", [*VALUES, *BYTES, "nested", "another order"])
def test_a_file_to_import(name: str, kind: str, tmp_path: Path) -> None:
    draw, file, into = random.Random(f"{name} {kind}"), tmp_path / "in.jsonl", tmp_path / "into"
    for _ in range(4):
        file.write_bytes(damaged_lines((EXCHANGED / f"{name}.jsonl").read_bytes(), kind, draw))
        ended = run("bench.exchange", "from=spec_bench", f"file={file}", f"into={into}")
        assert ended.answered, ended.err
        if ended.status == 2:
            assert not list(into.glob("*")), "nothing of a refused file is kept"
        for kept in into.glob("*"):
            kept.rename(tmp_path / f"kept-{len(list(tmp_path.iterdir()))}")


def text(content: str) -> bytes:
    return struct.pack("<Q", len(content)) + content.encode()


def header(rest: bytes, tensors: int = 0, keys: int = 1) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + rest + bytes(60)


HEADERS: Mapping[str, bytes] = {
    "an array of 2^40": header(text("a") + struct.pack("<IIQ", 9, 6, 1 << 40)),
    "2^62 keys": header(b"", keys=1 << 62),
    "2^62 tensors": header(b"", tensors=1 << 62, keys=0),
    "a text of 2^60 bytes": header(struct.pack("<Q", 1 << 60)),
    "arrays in arrays": header(text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 40),
    "an array of 2^40 texts": header(text("a") + struct.pack("<IIQ", 9, 8, 1 << 40)),
    "an unknown type": header(text("a") + struct.pack("<I", 99)),
}
"""Name -> a file that announces more than it holds."""


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("gguf") / "real.gguf"
    write_gguf(file, PROJECT / "models" / "tiny" / "target")
    return file.read_bytes()


@attack
@pytest.mark.parametrize("name", [*HEADERS, *(f"{kind} {number}" for kind in BYTES for number in range(5))])
def test_a_gguf_file(name: str, gguf: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path / "cache"))
    draw, file = random.Random(name), tmp_path / "model.gguf"
    begin = draw.randrange(200, 4000)  # in the header, not in the weights
    file.write_bytes(HEADERS.get(name) or BYTES[name[:-2]](gguf[:begin], draw) + gguf[begin:])
    ended = run("bench", "method=pld", "task=mini_chat", "n=1", "timed=0", "decoding.max_new_tokens=2",
                f"pair.target={file}", "engine.threads=1", f"output.dir={tmp_path / 'out'}")
    assert ended.answered or ended.status == 1, ended.err
