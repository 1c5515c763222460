"""Merge one store, a folder or a tar archive, into another: cells in both are compared sample by sample, differing ones
are kept apart.

Members of an archive are read one after the other and never unpacked as they ask for: only regular files whose names a
cell has are written, below a new folder, at names made here."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import count
from pathlib import Path, PurePosixPath
from typing import IO, Any, NoReturn
from zlib import error as ZlibError

from results.store.cells import CellFolder, Store
from results.store.errors import StoreError, one_line
from results.store.files import check_writable, copy_file, copy_files, temporary_name, writing
from results.store.records import KEY, TRACE, files_of, is_known
from results.store.sample import TREES, FailedSample, Record, Sample, Timed, another_prompt, hashes_differ

APART = "apart"
"""Folder for cells that differ: <root>/apart/NAME is a separate store; NAME is the name of the other store, with a
number behind it where another store of that name is kept there."""
NATS = 1e-3
"""Relative tolerance of likelihoods: batches and processors differ in how they round sums."""
MOST_MEMBERS = 200_000
"""Twenty thousand cells. More are refused: each costs time."""
LARGEST_HEADER = 1 << 16
"""Bytes of a long name or of a member's attributes, which tarfile reads into memory."""
OPENED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open, b"": open}
"""Beginning of a file -> what reads it. tarfile's own decompression takes hours for a file of zeros."""
UNPACKED = "archive"
Place = tuple[str, ...]
"""A member's path in its parts."""


@dataclass(slots=True)
class Merged:
    """What a merge did, cell by cell.

    added     cells that were missing
    extended  cell -> prompts that were added to it
    equal     cells that held all samples of the other store
    apart     cell -> why it was kept apart
    refused   cell -> why it was left alone
    unknown   paths in the other store's cells that no cell has: they are not copied
    place     the store with the cells that were kept apart; None without any
    """

    added: list[str] = field(default_factory=list)
    extended: dict[str, int] = field(default_factory=dict)
    equal: list[str] = field(default_factory=list)
    apart: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    place: Path | None = None


def merge(into: Store, other: Store) -> Merged:
    """Add every cell of `other` to `into`; `other` does not change. The same call completes an interrupted one.

    A cell that `into` lacks is copied. If both hold a cell, their common samples are compared. If all are equal, the
    missing samples are added; times only if `into` has none for the cell, so that no cell mixes times of two machines.
    A cell that differs, or whose baseline does, is copied into <root>/apart/NAME. Raises StoreError if `into` cannot be
    written."""
    merged, baselines = Merged(), {}
    for cell in other.cells():
        try:
            cell.check()
            baselines[cell.key] = str((cell.config() or {}).get("baseline", ""))
        except StoreError as error:
            merged.refused[cell.key] = str(error)
    check_writable(into.root, "store.dir")
    for key in sorted(baselines, key=lambda key: (baselines[key] != key, key)):  # baselines first
        try:
            if baselines[key] in merged.apart:
                reason = f"its baseline {baselines[key]} is kept apart"
            else:
                reason = _bring(other.cell(key), into.cell(key), merged)
            if reason:
                merged.apart[key] = reason
        except StoreError as error:
            merged.refused[key] = str(error)
    if merged.apart:
        needed = {*merged.apart, *(baselines[key] for key in merged.apart)}
        merged.place = _keep_apart(into, other, sorted(needed & baselines.keys()))
    return merged


def _keep_apart(into: Store, other: Store, keys: list[str]) -> Path:
    """Copy these cells into a store of their own below `into`: the first of NAME, NAME-2, … that holds no other
    samples of them. Raises StoreError."""
    name = other.root.resolve().name
    for number in count(1):
        apart = Store(into.root / APART / (name if number == 1 else f"{name}-{number}"))
        if all(_is_same(apart.cell(key), other.cell(key)) for key in keys):
            break
    for key in keys:
        if not apart.cell(key).path.exists():
            copy_files(other.cell(key).path, files_of(other.cell(key).path)[0], apart.cell(key).path)
    return apart.root


def _is_same(kept: CellFolder, theirs: CellFolder) -> bool:
    """Whether a cell that is kept apart is missing or holds the same samples."""
    return not kept.path.exists() or kept.samples() == theirs.samples()


def _bring(theirs: CellFolder, ours: CellFolder, merged: Merged) -> str:
    """Copy a cell, or add what ours lacks. Returns how the two differ, in which case nothing is written."""
    known, unknown = files_of(theirs.path)
    merged.unknown += [f"{theirs.key}/{path}" for path in unknown]
    if not ours.path.exists():
        copy_files(theirs.path, known, ours.path)
        merged.added.append(theirs.key)
        return ""
    with ours.lock():
        if reason := difference(ours.samples(), theirs.samples()):
            config = ours.config() or {}
            return reason + (", and decoding again never gives the same drafts" if config.get(
                "repeatable") is False else "")
        missing, timed = _missing(ours, theirs), _clock(ours, theirs)
        for record in missing:
            ours.append(record)
        if timed:
            ours.forget_times()  # a part of theirs at most, and the summary without them
        for row in timed:
            ours.append_timed(row)
        if (missing or timed) and (environment := theirs.environment()) is not None:
            ours.add_environment(environment)
        if missing:
            merged.extended[ours.key] = len(missing)
        else:
            merged.equal.append(ours.key)
        _copy_others(theirs, ours)
    return ""


def _missing(ours: CellFolder, theirs: CellFolder) -> list[Record]:
    """Their records of prompts that ours has not answered or scored; a failure only for a prompt that ours has not
    tried."""
    tried = {record.id: _progress(record) for record in ours.samples()}
    return [record for record in theirs.samples() if _progress(record) > tried.get(record.id, -1)]


def _progress(record: Record) -> int:
    return 0 if isinstance(record, FailedSample) else 1 if record.unscored else 2


def _clock(ours: CellFolder, theirs: CellFolder) -> list[Timed]:
    """Their timed prompts, if ours has none or only a part of them, which a killed merge leaves. A clock of our own
    stays as it is."""
    own, others = ours.timed(), theirs.timed()
    return others if len(own) < len(others) and all(row in others for row in own) else []


def _copy_others(theirs: CellFolder, ours: CellFolder) -> None:
    """Copy the files that ours lacks: all traces, a profile if the times are the same, a summary if times and samples
    are the same."""
    same_clock, same_samples = (_content(theirs, name) == _content(ours, name)
                                for name in ("timed.jsonl", "samples.jsonl"))
    known, _ = files_of(theirs.path)
    wanted = {"profile.json": same_clock, "summary.json": same_clock and same_samples, "failure.json": False}
    for name in (path for path in known if path.parent == Path() and wanted.get(path.name, True)):
        if not (ours.path / name).exists():
            copy_file(theirs.path / name, ours.path / name)
    traces = [path.relative_to(TRACE) for path in known if path.parent == Path(TRACE)]
    if traces and not (ours.path / TRACE).exists():
        copy_files(theirs.path / TRACE, traces, ours.path / TRACE)


def _content(cell: CellFolder, name: str) -> bytes:
    path = cell.path / name
    return path.read_bytes() if path.exists() else b""


def difference(own: Iterable[Record], other: Iterable[Record]) -> str:
    """How the answers to the prompts that both answered differ, in one line that names the first of them; empty where
    all are equal."""
    answered = {record.id: record for record in other if isinstance(record, Sample)}
    pairs = [(record, answered[record.id]) for record in own if isinstance(record, Sample) and record.id in answered]
    prompts = [another_prompt(one.id, one.prompt_sha256 or "", two.prompt_sha256 or "")
               for one, two in pairs if hashes_differ(one, two)]
    if prompts:
        return f"{len(prompts)} of {len(pairs)} prompts differ, first {prompts[0]}"
    tokens = [f"{one.id} at token {at}" for one, two in pairs
              if (at := first_difference(one.output_ids, two.output_ids)) is not None]
    if tokens:
        return f"{len(tokens)} of {len(pairs)} prompts differ in their tokens, first {tokens[0]}"
    others = [f"{one.id} in {name}" for one, two in pairs if (name := differing_field(one, two))]
    return f"{len(others)} of {len(pairs)} prompts differ, first {others[0]}" if others else ""


def first_difference(own: list[int], other: list[int]) -> int | None:
    """Index of the first token that differs, or where the shorter of two answers ends; None for equal ones."""
    if own == other:
        return None
    pairs = enumerate(zip(own, other, strict=False))
    return next((at for at, (one, two) in pairs if one != two), min(len(own), len(other)))


def differing_field(own: Sample, other: Sample) -> str:
    """The first field that differs, likelihoods by more than `NATS`; empty for equal samples. Distortion, whose last
    digits depend on the batch, and what a sample of an earlier schema does not know are equal."""
    close = (own.nll is None) == (other.nll is None) and math.isclose(own.nll or 0, other.nll or 0, rel_tol=NATS)
    if not close:
        return "nll"
    later = (*TREES, "prompt_sha256")
    scores = ("score", "answer", "details", "unscored") if own.unscored or other.unscored else ()
    skipped = {"nll", "distortion", *scores,
               *(name for name in later if not (getattr(own, name) and getattr(other, name)))}
    return next((field.name for field in fields(own) if field.name not in skipped
                 and getattr(own, field.name) != getattr(other, field.name)), "")


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
