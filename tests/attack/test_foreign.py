"""Files from elsewhere, damaged at random: archives to merge, answers to import, GGUF models. Each is read whole or
refused in one line, and nothing is written outside the folder that the command names."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.commands import run
from tests.helpers.stores import decoded, difference, snapshot

attack = pytest.mark.attack
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
