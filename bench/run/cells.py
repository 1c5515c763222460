"""Complete cells: measure what is missing, trace it where wanted, log it. Commands, sweeps and reports all end here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from bench.run.asked import asked_folder
from bench.run.console import console
from bench.run.rotation import is_complete, rotations, run_rotation
from bench.run.trace import trace_cells

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Settings
    from bench.run.model_pool import ModelPool
    from results.store.cells import Store


def run_cells(cells: Sequence[Cell], settings: Settings, store: Store, pool: ModelPool,
              traced: Collection[str] = ()) -> None:
    """Complete the cells, one rotation after the other. Cells named in `traced` are traced even without trace=true.

    A cell that fails does not stop the others: its folder says why. A cell that another process is writing is left
    until the others are complete; where that process then ends before it, it is completed here."""
    remaining = list(cells)
    while remaining:
        remaining = _run_free(remaining, settings, store, pool, traced)
        for cell in remaining:
            with asked_folder(cell, store).lock(wait=True):  # until the other process ends
                pass


def _run_free(cells: Sequence[Cell], settings: Settings, store: Store, pool: ModelPool,
              traced: Collection[str]) -> list[Cell]:
    """Complete the cells that no other process is writing; the others are returned."""
    written_elsewhere: list[Cell] = []
    groups = rotations(cells)
    for number, rotation in enumerate(groups, start=1):
        if len(groups) > 1 and not all(is_complete(asked_folder(cell, store)) for cell in rotation):
            console().print(f"{number} of {len(groups)}: {_title(rotation)}", highlight=False)
        left = run_rotation(rotation, store, pool)
        written_elsewhere += left
        done = [cell for cell in rotation if cell not in left]
        if to_trace := [cell for cell in done if settings.trace or cell.name in traced]:
            trace_cells(to_trace, store, pool)
        _log_cells(done, settings, store)
    return written_elsewhere


def _title(rotation: Sequence[Cell]) -> str:
    first = rotation[0]
    points = f"{len(rotation)} point{'s' if len(rotation) > 1 else ''}"
    return f"{first.pair.name}, {first.task.name}, temperature {first.decoding.temperature:g}, {points}"


def _log_cells(cells: Sequence[Cell], settings: Settings, store: Store) -> None:
    """Hand every measured cell to the tracker."""
    for cell in cells:
        folder = asked_folder(cell, store)
        if (summary := folder.summary()) is not None:
            settings.tracker.options.log_cell(cell.name, folder.config() or {}, folder.samples(), summary)
