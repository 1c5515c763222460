"""Read a store out of a tar archive. Members are read one after the other and never unpacked as they ask for: only
regular files whose names a cell has are written, below a new folder, at names made here."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NoReturn
from zlib import error as ZlibError

from results.store.cell_files import KEY, is_known
from results.store.files import temporary_name, writing
from results.store.reasons import one_line

MOST_MEMBERS = 200_000
"""Twenty thousand cells. More are refused: each costs time."""
LARGEST_HEADER = 1 << 16
"""Bytes of a long name or of a member's attributes, which tarfile reads into memory."""
OPENED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open, b"": open}
"""Beginning of a file -> what reads it. tarfile's own decompression takes hours for a file of zeros."""
UNPACKED = "archive"
Place = tuple[str, ...]
"""A member's path in its parts."""


class _Member(tarfile.TarInfo):
    """A member without what makes tarfile read without an end: negative sizes, large headers, sparse files."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        found = super().frombuf(buf, encoding, errors)
        extended = found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) and not found.isdir()
        if found.size < 0 or (extended and found.size > LARGEST_HEADER):
            raise tarfile.HeaderError(f"a header of {found.size} bytes")
        return found

    def _refuse(self, *_: object) -> NoReturn:
        raise tarfile.HeaderError("a sparse file")

    _proc_sparse = _proc_gnusparse_10 = _refuse


@contextmanager
def unpacked(source: Path, beside: Path, max_bytes: int) -> Iterator[tuple[Path, list[str]]]:
    """As long as it is read: a folder with the cells of an archive, in the folder `beside`, and the names of members
    left out, folders and hidden files not counted.

    Raises ValueError, one line, for what is no whole archive, holds no cell or several stores, or unpacks to more than
    `max_bytes`; StoreError where the folder cannot be written."""
    made = temporary_name(beside / UNPACKED)
    try:
        members = _members(source, max_bytes)
        root = _root([place for _, _, place in members if place], source)
        wanted = {number: place[len(root):] for number, _, place in members if _is_of_cell(place, root)}
        folder = made / source.name
        for number, member, archive in _read(source, max_bytes):
            if number in wanted and (content := archive.extractfile(member)) is not None:
                path = folder.joinpath(*wanted[number])
                with writing(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with content, path.open("wb") as out:
                        shutil.copyfileobj(content, out)
        yield folder, [name for number, name, _ in members
                       if number not in wanted and not PurePosixPath(name).name.startswith(".")]
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _is_of_cell(place: Place, root: Place) -> bool:
    """Whether a place is of a file that this project writes, in a cell's folder directly below `root`."""
    below = place[len(root):]
    return place[:len(root)] == root and len(below) > 1 and bool(KEY.fullmatch(below[0])) and is_known(below[1:])


def _members(source: Path, max_bytes: int) -> list[tuple[int, str, Place]]:
    """Number, name and place of all members but folders; an empty place for what is no regular file, or leads
    outside."""
    found = []
    for number, member, _ in _read(source, max_bytes):
        if not member.isdir():
            parts = PurePosixPath(member.name).parts
            regular = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not {"..", "/"} & set(parts)
            found.append((number, member.name, parts if regular else ()))
    return found


def _root(places: list[Place], source: Path) -> Place:
    """Where the cells lie: the shortest path to a folder that holds CELL/cell.yaml. Raises ValueError."""
    roots = {place[:-2] for place in places if place[-1] == "cell.yaml" and len(place) > 1 and KEY.fullmatch(place[-2])}
    shallow = sorted(root for root in roots if len(root) == min(map(len, roots)))
    if not shallow:
        raise ValueError(f"from={source}: holds no cell (no CELL/cell.yaml); give an archive made by "
                         "`tar -cJf FILE store`")
    if len(shallow) > 1:
        first, second = ("/".join(root) for root in shallow[:2])
        raise ValueError(f"from={source}: holds several stores, {first} and {second}; give one archive for each")
    return shallow[0]


def _read(source: Path, max_bytes: int) -> Iterator[tuple[int, tarfile.TarInfo, tarfile.TarFile]]:
    """The members with their numbers. Raises ValueError where the archive is damaged or too large."""
    try:
        with _opened(source) as content, tarfile.open(fileobj=content, mode="r|", tarinfo=_Member) as archive:
            for number, member in enumerate(archive):
                if number >= MOST_MEMBERS:
                    raise ValueError(f"from={source}: more than {MOST_MEMBERS:,} members; unpack it, give the folder")
                if member.offset_data + member.size > max_bytes:
                    raise ValueError(f"from={source}: unpacks to more than max_bytes={max_bytes:,}; raise max_bytes if "
                                     "the archive is yours")
                yield number, member, archive
    except (tarfile.TarError, EOFError, lzma.LZMAError, ZlibError, OSError, RecursionError) as error:
        raise ValueError(f"from={source}: not a whole tar archive ({one_line(error)}); give the store of a run, or an "
                         "archive made by `tar -cJf FILE store`") from error


def _opened(source: Path) -> IO[bytes]:
    """The unpacked bytes of an archive. Raises OSError."""
    with source.open("rb") as file:
        beginning = file.read(6)
    opened: IO[bytes] = next(way for magic, way in OPENED.items() if beginning.startswith(magic))(source, "rb")
    return opened
