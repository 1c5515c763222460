"""Metrics that compare a cell with others, among them control metrics that reveal rules which are merely greedier.

Relaxed rules can gain accepted length by making decoding greedier. So a summary also holds the agreement of repeats,
and the same method at temperature 0 and with the other q_mode, where those cells were measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from bench.run.requested_cell import requested_cell
from results.metrics.answer_cost import lossless_pass_ratio
from results.metrics.summary import diversity
from results.metrics.tau_gain import gains

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.store.cells import Store
    from results.store.sample import Sample
    from results.store.summary import Summary

TWIN_METRICS = ("tau", "speedup", "accuracy")


def add_cross_cell_metrics(cells: Sequence[Cell], store: Store) -> None:
    """Add to the summaries of measured cells the metrics that compare them with other cells of the store."""
    for asked in {cell.name: cell for cell in cells}.values():
        cell = requested_cell(asked, store).cell
        folder = requested_cell(cell, store)
        if (summary := compared_summary(cell, store)) is not None and summary != folder.stored_summary():
            folder.write_summary(summary)


def compared_summary(cell: Cell, store: Store) -> Summary | None:
    """The summary of the prompts that the cell asks for, with the metrics that compare it with its repeats, with its
    control cells and with the lossless rule. None while prompts are missing. Raises StoreError."""
    summary = requested_cell(cell, store).summary()
    if summary is None:
        return None
    values: dict[str, Any] = {}
    runs = repeats_of(cell, store)
    if len(runs) > 1:
        values |= diversity([sample for run in runs for sample in run])
    for name, control in control_cells(cell):
        other = requested_cell(control, store).summary()
        if other is not None:
            values |= {f"{name}_{metric}": getattr(other, metric) for metric in TWIN_METRICS}
    return summary.with_values(**values, **_over_lossless(cell, store))


def _over_lossless(cell: Cell, store: Store) -> dict[str, Any]:
    """What the cell gains over the lossless rule at the same point, in parts where their cells were measured too."""
    lossless = cell.lossless()
    if cell.is_autoregressive or lossless.name == cell.name:
        return {}
    points = {"own": cell, "lossless": lossless}
    if cell.decoding.temperature > 0:
        points |= {"exact": _in_q_mode(cell, "exact"), "lossless_greedy": _greedy(lossless)}
    untimed = {name: point.replace(timed=0) for name, point in points.items()}  # τ and NLL need no clock
    folders = {name: requested_cell(point, store) for name, point in untimed.items()}
    summaries = {name: found for name, folder in folders.items() if (found := folder.summary()) is not None}
    if not {"own", "lossless"} <= set(summaries):
        return {}
    runs = {name: folders[name].good_samples() for name in summaries}
    saved = lossless_pass_ratio(runs["own"], runs["lossless"])
    return gains(runs) | saved | {"lossless_accuracy": summaries["lossless"].accuracy}


def repeats_of(cell: Cell, store: Store) -> list[list[Sample]]:
    """The samples of each measured cell that differs in `repeat` alone, this one included: counted from 0 without a
    gap. Whether they were timed does not matter. Raises StoreError."""
    runs = []
    for repeat in count():
        folder = requested_cell(cell.replace(repeat=repeat, timed=0), store)
        if folder.summary() is not None:
            runs.append(folder.good_samples())
        elif repeat >= cell.repeat:
            break
    return runs


def control_cells(cell: Cell) -> Iterator[tuple[str, Cell]]:
    """The same point at temperature 0 ("greedy"), and with the other q_mode ("other_q"), where those can run."""
    if cell.decoding.temperature > 0:
        yield from _possible("greedy", _greedy(cell))
    exact, draft = _in_q_mode(cell, "exact"), _in_q_mode(cell, "draft")
    if exact.rule != draft.rule and not cell.is_autoregressive:
        yield from _possible("other_q", draft if cell.rule == exact.rule else exact)


def _greedy(cell: Cell) -> Cell:
    return cell.replace(decoding=cell.decoding.model_copy(update={"temperature": 0.0}))


def _in_q_mode(cell: Cell, mode: str) -> Cell:
    """The cell with every q_mode of its rule, and of rules inside it, in that mode: itself where there is none."""
    options = cell.rule.options
    changed = type(options)(**_replaced(options.model_dump(), mode))
    return cell.replace(rule=cell.rule.model_copy(update={"options": changed}))


def _replaced(options: Mapping[str, Any], mode: str) -> dict[str, Any]:
    return {name: _replaced(value, mode) if isinstance(value, Mapping) else mode if name == "q_mode" else value
            for name, value in options.items()}


def _possible(name: str, control: Cell) -> Iterator[tuple[str, Cell]]:
    if control.can_run:  # not a variant without q, or a rule that needs a temperature: there is no such control
        yield name, control
