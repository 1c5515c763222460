"""Metrics that compare a cell with others: its repeats, and what it gains over lossless
decoding."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from bench.run.requested_cell import RequestedCell
from results.metrics.summary import diversity
from results.metrics.tau_gain import gain, paired
from results.store.errors import StoreError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.metrics.delta import Between
    from results.metrics.summary import Summary
    from results.store.cells import Store
    from results.store.sample import Sample

GAINS = ("tau_gain",)
"""The metric that compares a cell with the lossless rule."""


def compared_summary(
    folder: RequestedCell, store: Store, between: Between | None = None
) -> Summary:
    """The summary of the prompts of a measured cell, with the metrics that compare it with its
    repeats and with the lossless rule; the intervals of its speeds with what differs between
    measuring sessions. Raises StoreError."""
    summary = folder.summary().with_values(between=between)
    runs = repeats_of(folder.cell, store)
    if len(runs) > 1:
        summary = summary.with_values(**diversity([sample for run in runs for sample in run]))
    return over_lossless(summary, folder, store)


def over_lossless(
    summary: Summary, folder: RequestedCell, store: Store, asked: float | None = None
) -> Summary:
    """The summary of a measured cell with what it gains over the lossless rule at the same point.
    `asked`: the temperature of the point in place of the cell's own, for a control."""
    cell = folder.cell
    point = cell if asked is None else judged_point(cell, asked)
    lossless = point.replace(timed=0).lossless()  # τ and NLL need no clock
    runs = None
    if not cell.is_autoregressive and lossless.name != cell.name:
        with suppress(StoreError):  # who asks for that cell is told
            strict = samples_of(lossless, store)
            runs = None if strict is None else paired(folder.by_id(), strict)
    return summary.with_later(GAINS, partial(gain, runs))


def repeats_of(cell: Cell, store: Store) -> list[list[Sample]]:
    """The samples of each measured cell that differs in `repeat` alone, this one included: counted
    from 0 without a gap. Whether they were timed does not matter. Raises StoreError."""
    runs = []
    for repeat in count():
        folder = RequestedCell(cell.replace(repeat=repeat, timed=0), store)
        if folder.measured() is not None:
            runs.append(folder.good_samples())
        elif repeat >= cell.repeat:
            break
    return runs


def judged_point(cell: Cell, temperature: float) -> Cell:
    """The cell as which a control is presented: the first repeat at this temperature, not
    truncated."""
    whole = {"temperature": temperature, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
    whole["repetition_penalty"] = 1.0
    return cell.replace(decoding=cell.decoding.model_copy(update=whole), repeat=0)


def samples_of(cell: Cell, store: Store) -> dict[str, Sample] | None:
    """Prompt id -> sample, of the prompts that the cell asks for; None while one is missing. It
    needs no summary, which a cell that only served as a baseline does not have. Raises
    StoreError."""
    folder = RequestedCell(cell, store)
    if len(folder.samples()) < len(folder.ids):
        return None
    return folder.by_id()
