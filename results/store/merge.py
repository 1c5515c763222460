"""Merge one store into another: cells in both are compared sample by sample."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path

from results.store.cells import CellFolder, Store
from results.store.errors import StoreError
from results.store.files import check_writable, copy_file, copy_files
from results.store.records import TRACE, files_of
from results.store.sample import FailedSample, Record, Sample, Timed, changed_prompt

NATS = 1e-3
"""Relative tolerance of likelihoods: batches and processors differ in how they round sums."""


@dataclass(slots=True)
class Merged:
    """What a merge did, cell by cell.

    added     cells that were missing
    extended  cell -> prompts that were added to it
    equal     cells that held all samples of the other store
    left      cell -> why it was left alone: it differs, cannot be read, or is being written
    """

    added: list[str] = field(default_factory=list)
    extended: dict[str, int] = field(default_factory=dict)
    equal: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def merge(into: Store, other: Store) -> Merged:
    """Add every cell of `other` to `into`; `other` does not change. The same call completes an
    interrupted one.

    A cell that `into` lacks is copied. If both hold a cell, their common samples are compared. If
    all are equal, the missing samples are added; times only if `into` has none for the cell, so
    that no cell mixes times of two machines. A cell that differs, or whose baseline does, is left
    alone. Raises StoreError if `into` cannot be written."""
    merged, baselines = Merged(), {}
    for cell in other.cells():
        try:
            cell.check()
            baselines[cell.key] = str((cell.config() or {}).get("baseline", ""))
        except StoreError as error:
            merged.left[cell.key] = str(error)
    check_writable(into.root, "store.dir")
    for key in sorted(baselines, key=lambda key: (baselines[key] != key, key)):  # baselines first
        if baselines[key] in merged.left:
            merged.left[key] = f"its baseline {baselines[key]} is left alone"
            continue
        try:
            _bring(other.cell(key), into.cell(key), merged)
        except StoreError as error:
            merged.left[key] = str(error)
    return merged


def _bring(theirs: CellFolder, ours: CellFolder, merged: Merged) -> None:
    """Copy a cell, or add what ours lacks; nothing where the two differ."""
    if not ours.path.exists():
        copy_files(theirs.path, files_of(theirs.path), ours.path)
        merged.added.append(theirs.key)
        return
    with ours.lock():
        if reason := difference(ours.samples(), theirs.samples()):
            changes = (ours.config() or {}).get("repeatable") is False
            merged.left[ours.key] = (
                reason + ", and decoding again never gives the same drafts" * changes
            )
            return
        tried = {record.id: _progress(record) for record in ours.samples()}
        missing = [
            record for record in theirs.samples() if _progress(record) > tried.get(record.id, -1)
        ]
        timed = _clock(ours, theirs)
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


def _progress(record: Record) -> int:
    return 0 if isinstance(record, FailedSample) else 1 if record.unscored else 2


def _clock(ours: CellFolder, theirs: CellFolder) -> list[Timed]:
    """Their timed prompts, if ours has none or only a part of them, which a killed merge leaves."""
    own, others = ours.timed(), theirs.timed()
    return others if len(own) < len(others) and all(row in others for row in own) else []


def _copy_others(theirs: CellFolder, ours: CellFolder) -> None:
    """Copy the files that ours lacks: all traces, a profile if the times are the same, a summary if
    times and samples are the same."""
    same_clock, same_samples = theirs.timed() == ours.timed(), theirs.samples() == ours.samples()
    known = files_of(theirs.path)
    wanted = {
        "profile.json": same_clock,
        "summary.json": same_clock and same_samples,
        "failure.json": False,
    }
    for name in (path for path in known if path.parent == Path() and wanted.get(path.name, True)):
        if not (ours.path / name).exists():
            copy_file(theirs.path / name, ours.path / name)
    traces = [path.relative_to(TRACE) for path in known if path.parent == Path(TRACE)]
    if traces and not (ours.path / TRACE).exists():
        copy_files(theirs.path / TRACE, traces, ours.path / TRACE)


def difference(own: Iterable[Record], other: Iterable[Record]) -> str:
    """How the answers to the prompts that both answered differ, in one line that names the first of
    them; empty where all are equal."""
    answered = {record.id: record for record in other if isinstance(record, Sample)}
    pairs = [
        (record, answered[record.id])
        for record in own
        if isinstance(record, Sample) and record.id in answered
    ]
    if parted := [found for mine, theirs in pairs if (found := _difference(mine, theirs))]:
        return f"{len(parted)} of {len(pairs)} prompts differ, first {parted[0]}"
    return ""


def _difference(own: Sample, other: Sample) -> str:
    """How two samples of a prompt differ: in the prompt, the token or the field that does first;
    likelihoods by more than `NATS`. Distortion, whose last digits depend on the batch, is not
    compared."""
    if reason := changed_prompt(own, other):
        return reason
    if own.output_ids != other.output_ids:
        pairs = enumerate(zip(own.output_ids, other.output_ids, strict=False))
        shorter = min(len(own.output_ids), len(other.output_ids))
        return (
            f"{own.id} at token "
            f"{next((at for at, (mine, theirs) in pairs if mine != theirs), shorter)}"
        )
    if (own.nll is None) != (other.nll is None) or not math.isclose(
        own.nll or 0, other.nll or 0, rel_tol=NATS
    ):
        return f"{own.id} in nll"
    scores = ("score", "answer", "details", "unscored") if own.unscored or other.unscored else ()
    skipped = {"nll", "distortion", *scores}
    return next(
        (
            f"{own.id} in {field.name}"
            for field in fields(own)
            if field.name not in skipped and getattr(own, field.name) != getattr(other, field.name)
        ),
        "",
    )
