"""A store is read out of an archive, or refused in one line; hostile members: tests/attack/test_foreign.py."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from bench import merge
from results.store.cells import Store
from tests.results.test_merge import BASE, CELL, store


def merged(into: Path, source: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    status = merge.main([f"store.dir={into}", f"from={source}", *more])
    printed = capsys.readouterr()
    assert not list(into.glob(".archive*")), "nothing is left of the unpacked archive"
    return status, printed.out, printed.err


def add(archive: tarfile.TarFile, name: str, content: bytes = b"", **fields: object) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for field, value in fields.items():
        setattr(member, field, value)
    archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return store(tmp_path / "other")


@pytest.mark.parametrize(("where", "below"), [("store", ""), (".", ""), ("", ""), ("a/b/store", ""), ("store", CELL)])
def test_cells_are_found_wherever_the_archive_begins(tmp_path: Path, other: Store, where: str, below: str,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    """Made by `tar store`, by `tar -C STORE .`, by `tar -C STORE *`, or of one cell's folder."""
    file = tmp_path / "a.tar.xz"
    with tarfile.open(file, "w:xz") as archive:
        for cell in [below] if below else [BASE, CELL]:
            archive.add(other.root / cell, f"{where}/{cell}".lstrip("/"))
    if below:  # its baseline is not in the archive
        store(tmp_path / "into", keys=[BASE])
    status, out, err = merged(tmp_path / "into", file, capsys)
    assert (status, err) == (0, "") and ("1 cells added" if below else "2 cells added") in out
    assert Store(tmp_path / "into").cell(CELL).samples() == other.cell(CELL).samples()


def test_an_archive_without_a_cell_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.tar"
    with tarfile.open(file, "w") as archive:
        add(archive, "store/README", b"nothing")
        add(archive, "cell.yaml", b"pair: {}")
    status, _, err = merged(tmp_path / "into", file, capsys)
    assert status == 2 and "holds no cell" in err
    (tmp_path / "empty").mkdir()
    status, _, err = merged(tmp_path / "into", tmp_path / "empty", capsys)
    assert status == 2 and "holds no cell" in err


def test_large_archives_are_refused(tmp_path: Path, other: Store,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.tar.xz"
    with tarfile.open(file, "w:xz") as archive:
        archive.add(other.root, "store")
        add(archive, f"store/{CELL}/big.bin", bytes(20_000_000))
    status, _, err = merged(tmp_path / "into", file, capsys, "max_bytes=10000000")
    assert status == 2 and "unpacks to more than max_bytes=10,000,000" in err and len(err.splitlines()) == 1
    assert merged(tmp_path / "into", file, capsys)[0] == 0


@pytest.mark.parametrize("kind", ["negative", "long name", "sparse"])
def test_headers_that_read_without_an_end_are_refused(tmp_path: Path, kind: str,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.tar"
    header = tarfile.TarInfo("store/cell/cell.yaml")
    if kind == "long name":
        header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    elif kind == "sparse":
        header.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}
    buffer = bytearray(header.tobuf(tarfile.PAX_FORMAT if kind == "sparse" else tarfile.GNU_FORMAT))
    if kind == "negative":
        buffer[124:136] = b"\xff" * 12
        buffer[148:156] = b"        "
        buffer[148:156] = b"%06o\0 " % sum(buffer)
    file.write_bytes(bytes(buffer) + bytes(10240))
    status, _, err = merged(tmp_path / "into", file, capsys)
    assert status == 2 and "not a whole tar archive" in err and len(err.splitlines()) == 1


DYING = """
import os, shutil, signal, sys
from bench import merge

def dies(content, out):
    out.write(content.read(10))
    os.kill(os.getpid(), signal.SIGKILL)

shutil.copyfileobj = dies
merge.main(sys.argv[1:])
"""
"""A merge that is killed while it unpacks its first file."""


def test_what_a_killed_merge_leaves_is_removed_by_the_next(tmp_path: Path, other: Store,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    file, into = tmp_path / "a.tar", tmp_path / "into"
    with tarfile.open(file, "w") as archive:
        archive.add(other.root, "store")
    words = [sys.executable, "-c", DYING, f"store.dir={into}", f"from={file}"]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL and list(into.glob(".archive*/a.tar/*/*")), done.stderr
    assert merged(into, other.root, capsys)[0] == 0
    assert merged(into, file, capsys)[0] == 0 and Store(into).cell(CELL).samples() == other.cell(CELL).samples()
