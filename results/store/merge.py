"""Merge one store into another: cells that it lacks are copied, cells in both must agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from results.store.cells import CellFolder, Store
from results.store.errors import StoreError
from results.store.files import copy_files
from results.store.records import files_of
from results.store.sample import Record, Sample, changed_prompt

NATS = 1e-3
"""Relative tolerance of likelihoods: batches and processors differ in how they round sums."""


@dataclass(slots=True)
class Merged:
    """What a merge did, cell by cell.

    added    cells that were missing
    equal    cells that held all that the other store has
    refused  cell -> why it is not merged: it disagrees, cannot be read or copied
    """

    added: list[str] = field(default_factory=list)
    equal: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def merge(into: Store, other: Store) -> Merged:
    """Copy every cell of `other` that `into` lacks, each whole or not at all; `other` does not
    change. The same call completes an interrupted one.

    A cell in both stays as it is, and is refused where its answers differ, or where the other one
    has answers or times that it lacks; so are the cells whose baseline is refused."""
    merged, baselines = Merged(), {}
    for cell in other.cells():
        try:
            cell.check()
            baselines[cell.key] = str((cell.config() or {}).get("baseline", ""))
        except StoreError as error:
            merged.refused[cell.key] = str(error)
    for key in sorted(baselines, key=lambda key: (baselines[key] != key, key)):  # baselines first
        ours, theirs = into.cell(key), other.cell(key)
        try:
            if baselines[key] in merged.refused:
                merged.refused[key] = f"its baseline {baselines[key]} is refused"
            elif not ours.path.exists():
                copy_files(theirs.path, files_of(theirs.path), ours.path)
                merged.added.append(key)
            elif reason := disagreement(ours, theirs):
                merged.refused[key] = reason
            else:
                merged.equal.append(key)
        except StoreError as error:
            merged.refused[key] = str(error)
    return merged


def disagreement(ours: CellFolder, theirs: CellFolder) -> str:
    """Why a cell of both stores is not merged, in one line; empty where ours holds all that theirs
    does. Raises StoreError for a file that cannot be read."""
    if reason := difference(ours.samples(), theirs.samples()):
        return reason
    answered = {sample.id for sample in ours.good_samples()}
    answers = [sample for sample in theirs.good_samples() if sample.id not in answered]
    times = [] if ours.timed() else theirs.timed()
    if answers or times:
        return (
            f"the other store has {len(answers)} answers and {len(times)} timed prompts that this "
            "one lacks: merge this store into the other one, or remove the cell's folder here"
        )
    return ""


def difference(ours: Sequence[Record], theirs: Sequence[Record]) -> str:
    """How the answers to the prompts that both answered differ, in one line that names the first of
    them; empty where all are equal."""
    answered = {record.id: record for record in theirs if isinstance(record, Sample)}
    pairs = [
        (record, answered[record.id])
        for record in ours
        if isinstance(record, Sample) and record.id in answered
    ]
    differences = list(filter(None, (_difference(mine, yours) for mine, yours in pairs)))
    if not differences:
        return ""
    return f"{len(differences)} of {len(pairs)} prompts differ, first {differences[0]}"


def _difference(ours: Sample, theirs: Sample) -> str:
    """How two samples of a prompt differ: in the prompt, the token or the field that does first;
    likelihoods by more than `NATS`. Distortion, whose last digits depend on the batch, is not
    compared."""
    if reason := changed_prompt(ours, theirs):
        return reason
    if ours.output_ids != theirs.output_ids:
        pairs = enumerate(zip(ours.output_ids, theirs.output_ids, strict=False))
        shorter = min(len(ours.output_ids), len(theirs.output_ids))
        first = next((at for at, (mine, yours) in pairs if mine != yours), shorter)
        return f"{ours.id} at token {first}"
    if (ours.nll is None) != (theirs.nll is None) or not math.isclose(
        ours.nll or 0, theirs.nll or 0, rel_tol=NATS
    ):
        return f"{ours.id} in nll"
    for name in (each.name for each in fields(ours) if each.name not in ("nll", "distortion")):
        if getattr(ours, name) != getattr(theirs, name):
            return f"{ours.id} in {name}"
    return ""
