"""What every summary says beside speed and score, so that greedy decoding in disguise shows.

Relaxed rules can win accepted length by making decoding greedier. Hence the likelihood of what was emitted under the
raw target, how alike repeats are, and the same method at temperature 0 and with the other q_mode, where those were run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from bench.config.cell import Cell
from bench.config.errors import ConfigError
from bench.config.schema import Named
from methods import registry
from results.metrics.summary import diversity
from results.metrics.tau_gain import gains
from results.store.cells import Store

TWIN_METRICS = ("tau", "speedup", "accuracy")




def add_cross_cell_metrics(cells: Sequence[Cell], store: Store) -> None:
    """Complete the summaries of measured cells by what other cells of the store say: repeats and control_cells."""
    for cell in {cell.name: cell for cell in cells}.values():
        folder = store.cell(cell.name)
        summary = folder.summary()
        if summary is None:
            continue
        values: dict[str, Any] = {}
        runs = [store.cell(name).good_samples() for name in _repeats(cell, store)]
        if len(runs) > 1:
            values |= diversity([sample for run in runs for sample in run])
        for name, twin in control_cells(cell):
            other = store.cell(twin.name).summary()
            if other is not None:
                values |= {f"{name}_{metric}": getattr(other, metric) for metric in TWIN_METRICS}
        values |= _over_lossless(cell, store)
        completed = summary.with_values(**values)
        if completed.plain() != summary.plain():
            folder.write_summary(completed)


def _over_lossless(cell: Cell, store: Store) -> dict[str, Any]:
    """What the cell gains over the lossless rule at the same point, in parts where their cells were measured too."""
    lossless = cell.twin(rule=Named(name="lossless", options=registry.rule("lossless")()))
    if cell.is_autoregressive or lossless.name == cell.name:
        return {}
    points = {"own": cell, "lossless": lossless}
    if cell.decoding.temperature > 0:
        points |= {"exact": _in_q_mode(cell, "exact"), "lossless_greedy": _greedy(lossless)}
    folders = {name: store.cell(point.name) for name, point in points.items()}
    summaries = {name: found for name, folder in folders.items() if (found := folder.summary()) is not None}
    if not {"own", "lossless"} <= set(summaries):
        return {}
    values = gains({name: folders[name].good_samples() for name in summaries})
    return values | {"lossless_accuracy": summaries["lossless"].accuracy}


def _repeats(cell: Cell, store: Store) -> Iterator[str]:
    """The measured cells that differ in `repeat` alone, this one included: counted from 0 without a gap."""
    for repeat in count():
        name = cell.twin(repeat=repeat).name
        if store.cell(name).summary() is not None:
            yield name
        elif repeat >= cell.repeat:
            return


def control_cells(cell: Cell) -> Iterator[tuple[str, Cell]]:
    """The same point at temperature 0 ("greedy"), and with the other q_mode ("other_q"), where those can run."""
    if cell.decoding.temperature > 0:
        yield from _possible("greedy", _greedy(cell))
    exact, draft = _in_q_mode(cell, "exact"), _in_q_mode(cell, "draft")
    if exact.rule != draft.rule and not cell.is_autoregressive:
        yield from _possible("other_q", draft if cell.rule == exact.rule else exact)


def _greedy(cell: Cell) -> Cell:
    return cell.twin(decoding=cell.decoding.model_copy(update={"temperature": 0.0}))


def _in_q_mode(cell: Cell, mode: str) -> Cell:
    """The cell with every q_mode of its rule, and of rules inside it, in that mode: itself where there is none."""
    options = cell.rule.options
    changed = type(options)(**_replaced(options.model_dump(), mode))
    return cell.twin(rule=cell.rule.model_copy(update={"options": changed}))


def _replaced(options: Mapping[str, Any], mode: str) -> dict[str, Any]:
    return {name: _replaced(value, mode) if isinstance(value, Mapping) else mode if name == "q_mode" else value
            for name, value in options.items()}


def _possible(name: str, twin: Cell) -> Iterator[tuple[str, Cell]]:
    try:
        twin.check()
    except ConfigError:  # a variant without q, a rule that needs a temperature: there is no such twin
        return
    yield name, twin
