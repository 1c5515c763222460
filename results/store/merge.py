"""Merge one store into another: cells in both are compared sample by sample, differing ones are kept apart."""

from __future__ import annotations

from dataclasses import dataclass, field

from results.store.cells import CellFolder, Store
from results.store.differences import differences
from results.store.errors import StoreError
from results.store.files import check_writable, copy_file, copy_folder
from results.store.sample import Record, Sample
from results.store.timed import Timed

APART = "apart"
"""Folder for cells that differ: <root>/apart/NAME is a separate store; NAME is the name of the other store."""


@dataclass(slots=True)
class Merged:
    """What a merge did, cell by cell.

    added     cells that were missing
    extended  cell -> prompts that were added to it
    equal     cells that held all samples of the other store
    apart     cell -> why it was kept apart
    refused   cell -> why it was left alone
    """

    added: list[str] = field(default_factory=list)
    extended: dict[str, int] = field(default_factory=dict)
    equal: list[str] = field(default_factory=list)
    apart: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def merge(into: Store, other: Store) -> Merged:
    """Add every cell of `other` to `into`; `other` does not change. The same call completes an interrupted one.

    A cell that `into` lacks is copied. If both hold a cell, their common samples are compared. If all are equal, the
    missing samples are added; times only if `into` has none for the cell, so that no cell mixes times of two machines.
    A cell that differs, or whose baseline does, is copied into <root>/apart/NAME. Raises StoreError if `into` cannot be
    written."""
    merged, twins = Merged(), {}
    for entry in other.entries():
        if entry.damage:
            merged.refused[entry.key] = entry.damage
        else:
            twins[entry.key] = entry.baseline
    check_writable(into.root, "store.dir")
    apart = into.root / APART / other.root.resolve().name
    for key in sorted(twins, key=lambda key: (twins[key] != key, key)):  # baselines first
        try:
            if twins[key] in merged.apart:
                reason = f"its baseline {twins[key]} is kept apart"
            else:
                reason = _bring(other.cell(key), into.cell(key), merged)
            if reason:
                merged.apart[key] = reason
                for name in {key, twins[key]} & twins.keys():
                    if not (apart / name).exists():
                        copy_folder(other.root / name, apart / name)
        except StoreError as error:
            merged.refused[key] = str(error)
    return merged


def _bring(theirs: CellFolder, ours: CellFolder, merged: Merged) -> str:
    """Copy a cell, or add what ours lacks. Returns how the two differ, in which case nothing is written."""
    if not ours.path.exists():
        copy_folder(theirs.path, ours.path)
        merged.added.append(theirs.key)
        return ""
    with ours.lock():
        compared = differences(ours.samples(), theirs.samples())
        if compared.first:
            return compared.first
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
    """Their records of prompts that ours has not answered; a failure only for a prompt that ours has not tried."""
    tried = {record.id: isinstance(record, Sample) for record in ours.samples()}
    return [record for record in theirs.samples()
            if not tried.get(record.id, False) and (isinstance(record, Sample) or record.id not in tried)]


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
    for file in sorted(theirs.path.iterdir()):
        wanted = {"profile.json": same_clock, "summary.json": same_clock and same_samples, "failure.json": False}
        if file.name.startswith(".") or (ours.path / file.name).exists() or not wanted.get(file.name, True):
            continue
        copy_folder(file, ours.path / file.name) if file.is_dir() else copy_file(file, ours.path / file.name)


def _content(cell: CellFolder, name: str) -> bytes:
    path = cell.path / name
    return path.read_bytes() if path.exists() else b""
