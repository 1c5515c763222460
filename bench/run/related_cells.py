"""Metrics that compare a cell with others: its repeats, and what it gains over lossless
decoding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from bench.run.requested_cell import RequestedCell
from results.metrics.summary import diversity
from results.metrics.tau_gain import gain

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.metrics.delta import Between
    from results.metrics.summary import Summary
    from results.store.cells import Store
    from results.store.sample import Sample

GAINS = ("tau_gain",)
"""The metric that compares a cell with the lossless rule."""


def compared_summary(
    cell: Cell,
    store: Store,
    folder_of: Callable[[Cell], RequestedCell],
    between: Between | None = None,
) -> Summary | None:
    """The summary of the prompts that the cell asks for, with the metrics that compare it with its
    repeats and with the lossless rule; speeds are those that the folders of `folder_of` have, their
    intervals with what differs between measuring sessions. None while prompts are missing. Raises
    StoreError."""
    if (summary := folder_of(cell).summary()) is None:
        return None
    summary = summary.with_values(between=between)
    runs = repeats_of(cell, store)
    if len(runs) > 1:
        summary = summary.with_values(**diversity([sample for run in runs for sample in run]))
    return summary.with_later(GAINS, partial(over_lossless, cell, store))


def over_lossless(cell: Cell, store: Store, asked: float | None = None) -> dict[str, Any]:
    """What the cell gains over the lossless rule at the same point. `asked`: the temperature of the
    point in place of the cell's own, for a control. Raises StoreError."""
    point = cell if asked is None else judged_point(cell, asked)
    lossless = point.replace(timed=0).lossless()  # τ and NLL need no clock
    if cell.is_autoregressive or lossless.name == cell.name:
        return {}
    samples = samples_of(cell.replace(timed=0), store)
    strict = samples_of(lossless, store)
    if samples is None or strict is None:
        return {}
    return gain(samples, strict)


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
