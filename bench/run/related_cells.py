"""Metrics that compare a cell with others: its repeats, and what it gains over lossless
decoding."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from bench.run.requested_cell import RequestedCell
from results.metrics.summary import diversity
from results.metrics.tau_gain import over_lossless
from results.store.errors import StoreError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.metrics.delta import Between
    from results.metrics.summary import Summary
    from results.store.cells import Store
    from results.store.sample import Sample


def compared_summary(
    folder: RequestedCell, store: Store, between: Between | None = None
) -> Summary:
    """The summary of the prompts of a measured cell, with the metrics that compare it with its
    repeats and with the lossless rule; the intervals of its speeds with what differs between
    measuring sessions. Raises StoreError."""
    repeats, strict = repeats_of(folder.cell, store), lossless_of(folder.cell, store)
    summary = folder.summary().with_values(between=between)
    if len(repeats) > 1:
        summary = summary.with_values(**diversity([sample for run in repeats for sample in run]))
    return over_lossless(summary, folder.by_id(), strict)


def lossless_of(
    cell: Cell, store: Store, temperature: float | None = None
) -> dict[str, Sample] | None:
    """Prompt id -> sample of the lossless rule at the cell's point, or at a control's of another
    `temperature`. It needs no summary, which a cell that only served as a baseline does not have.
    None where the cell is that rule's itself, or a sample is missing."""
    point = cell if temperature is None else judged_point(cell, temperature)
    lossless = point.replace(timed=0).lossless()  # τ and NLL need no clock
    if cell.is_autoregressive or lossless.name == cell.name:
        return None
    with suppress(StoreError):  # who asks for that cell is told
        folder = RequestedCell(lossless, store)
        if len(folder.samples()) >= len(folder.ids):
            return folder.by_id()
    return None


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
