"""Merge one store into another: cells in both are compared sample by sample, differing ones are kept apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from results.store.cell_files import TRACE, files_of
from results.store.cells import CellFolder, Store
from results.store.differences import differences
from results.store.errors import StoreError
from results.store.files import check_writable, copy_file, copy_files
from results.store.sample import FailedSample, Record
from results.store.timed import Timed

APART = "apart"
"""Folder for cells that differ: <root>/apart/NAME is a separate store; NAME is the name of the other store, with a
number behind it where another store of that name is kept there."""


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
    unhashed  prompts of both stores of which at least one does not know its hash
    """

    added: list[str] = field(default_factory=list)
    extended: dict[str, int] = field(default_factory=dict)
    equal: list[str] = field(default_factory=list)
    apart: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    place: Path | None = None
    unhashed: int = 0


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
        compared = differences(ours.samples(), theirs.samples())
        merged.unhashed += compared.unhashed
        if compared.first:
            config = ours.config() or {}
            return compared.first + (", and decoding again never gives the same drafts" if config.get(
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
