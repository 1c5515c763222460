"""Metrics that compare a cell with others: its repeats, and what it gains over lossless decoding.

Relaxed rules can gain accepted length by making decoding greedier, which a summary therefore tells
apart."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from bench.run.requested_cell import RequestedCell
from methods import registry
from results.metrics.catalog import METRICS
from results.metrics.metric import Sums
from results.metrics.summary import MATCH, diversity
from results.metrics.tau_gain import TEMPERATURES, Counts, Runs, common, gain, split

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.metrics.summary import Summary
    from results.store.cells import Store
    from results.store.sample import Sample

ARGMAX_ONLY = "argmax_only"
"""The rule that keeps of another what the lossless test or the argmax keeps."""
GAINS = (
    *(name for name in (*METRICS, MATCH) if name.startswith("tau_gain")),
    "pass_ratio_strict",
    "lossless_accuracy",
)
"""The metrics that compare a cell with the lossless rule."""


def compared_summary(
    cell: Cell, store: Store, folder_of: Callable[[Cell], RequestedCell]
) -> Summary | None:
    """The summary of the prompts that the cell asks for, with the metrics that compare it with its
    repeats and with the lossless rule; speeds are those that the folders of `folder_of` have. None
    while prompts are missing. Raises StoreError."""
    if (summary := folder_of(cell).summary()) is None:
        return None
    runs = repeats_of(cell, store)
    if len(runs) > 1:
        summary = summary.with_values(**diversity([sample for run in runs for sample in run]))
    return summary.with_later(GAINS, partial(over_lossless, cell, store))


def over_lossless(cell: Cell, store: Store, asked: float | None = None) -> dict[str, Any]:
    """What the cell gains over the lossless rule at the same point, in parts where their cells were
    measured too. `asked`: the temperature of the point in place of the cell's own, for a control.
    Raises StoreError."""
    point = cell if asked is None else judged_point(cell, asked)
    lossless = point.replace(timed=0).lossless()  # τ and NLL need no clock
    if cell.is_autoregressive or lossless.name == cell.name:
        return {}
    own, strict = samples_of(cell.replace(timed=0), store), samples_of(lossless, store)
    if own is None or strict is None:
        return {}
    runs = gain_runs(cell, store, asked)
    gains = gain(own, strict) if runs is None else split(runs, point.decoding.temperature)
    reference = RequestedCell(lossless, store).summary()
    passes = [
        (len(strict[name].committed), len(own[name].committed)) for name in common([own, strict])
    ]
    return gains | {
        "pass_ratio_strict": Sums.of(passes),
        "lossless_accuracy": None if reference is None else reference.accuracy,
    }


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


class GainCells(NamedTuple):
    """The cells of `results.metrics.tau_gain.Runs`, all untimed: tokens and likelihood need no
    clock."""

    own: Cell
    exact: Cell
    lossless: Mapping[float, Cell]
    argmax: Cell | None

    def all(self, argmax: bool) -> Iterator[Cell]:
        """`argmax`: with that of the mechanical split."""
        yield from (self.own, self.exact, *self.lossless.values())
        if argmax and self.argmax is not None:
            yield self.argmax


def at_temperature(cell: Cell, temperature: float) -> Cell:
    return cell.replace(decoding=cell.decoding.model_copy(update={"temperature": temperature}))


def judged_point(cell: Cell, temperature: float) -> Cell:
    """The cell as which a control is presented: the first repeat at this temperature, not
    truncated."""
    whole = {"temperature": temperature, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
    return cell.replace(decoding=cell.decoding.model_copy(update=whole), repeat=0)


def gain_cells(cell: Cell, asked: float | None = None) -> GainCells | None:
    """The cells that a split of the cell's Δτ needs; None where there is none: at temperature 0,
    for lossless rules and for autoregressive decoding. `asked`: the temperature that the cell is
    judged at in place of its own, on the curve of the first repeat: a control, which may be
    lossless itself."""
    point = cell if asked is None else judged_point(cell, asked)
    if (
        cell.is_autoregressive
        or point.decoding.sampling.greedy
        or (asked is None and cell.is_lossless)
    ):
        return None
    lossless = point.replace(timed=0).lossless()
    curve = {
        t: at_temperature(lossless, t) for t in sorted({*TEMPERATURES, point.decoding.temperature})
    }
    argmax = _argmax_only(cell) if asked is None else None
    return GainCells(
        cell.replace(timed=0), in_q_mode(cell, "exact").replace(timed=0), curve, argmax
    )


def gain_runs(
    cell: Cell, store: Store, asked: float | None = None, ids: Collection[str] | None = None
) -> Runs | None:
    """What was measured of these cells, over the prompts that all of them answered, of `ids` where
    they are given; None where one is missing. Raises StoreError."""
    cells = gain_cells(cell, asked)
    if cells is None:
        return None
    runs = {
        name: samples_of(one, store) for name, one in (("own", cells.own), ("exact", cells.exact))
    }
    curve = {t: samples_of(one, store) for t, one in cells.lossless.items()}
    plain = {t: samples_of(one.baseline(), store) for t, one in cells.lossless.items()}
    argmax = None if cells.argmax is None else samples_of(cells.argmax, store)
    needed = [*runs.values(), *curve.values(), *plain.values()]
    if any(run is None or any(one.nll is None for one in run.values()) for run in needed):
        return None
    shared = common([run for run in (*needed, argmax) if run is not None])
    shared = shared if ids is None else [name for name in shared if name in ids]
    counts = [Counts.of(run, shared) for run in needed if run is not None]
    size, temperatures = len(curve), list(curve)
    strict = cells.lossless[cell.decoding.temperature if asked is None else asked]
    return Runs(
        counts[0],
        counts[1],
        dict(zip(temperatures, counts[2 : 2 + size], strict=True)),
        dict(zip(temperatures, counts[2 + size :], strict=True)),
        None if argmax is None else Counts.of(argmax, shared),
        cells.exact.name == strict.name,
    )


def samples_of(cell: Cell, store: Store) -> dict[str, Sample] | None:
    """Prompt id -> sample, of the prompts that the cell asks for; None while one is missing. It
    needs no summary, which a cell that only served as a baseline does not have. Raises
    StoreError."""
    folder = RequestedCell(cell, store)
    if len(folder.samples()) < len(folder.ids):
        return None
    return {sample.id: sample for sample in folder.good_samples()}


def in_q_mode(cell: Cell, mode: str) -> Cell:
    """The cell with every q_mode of its rule, and of rules inside it, in that mode: itself where
    there is none."""
    options = cell.rule.options
    changed = type(options)(**_replaced(options.model_dump(), mode))
    return cell.replace(rule=cell.rule.model_copy(update={"options": changed}))


def _argmax_only(cell: Cell) -> Cell | None:
    """The cell whose rule keeps only what the lossless test or the argmax keeps; None where the
    rule cannot be inside another."""
    given = {"name": cell.rule.name, **cell.rule.options.model_dump()}
    try:
        options = registry.rule(ARGMAX_ONLY).model_validate({"of": given})
    except ValidationError:  # it looks further than one node, or holds rules itself
        return None
    return cell.replace(
        rule=cell.rule.model_copy(update={"name": ARGMAX_ONLY, "options": options}), timed=0
    )


def _replaced(options: Mapping[str, Any], mode: str) -> dict[str, Any]:
    return {
        name: _replaced(value, mode)
        if isinstance(value, Mapping)
        else mode
        if name == "q_mode"
        else value
        for name, value in options.items()
    }
