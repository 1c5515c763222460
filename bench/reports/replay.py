"""`replay=auto` or `replay=[0.8,0.9]`: acceptance of traced cells at other thresholds, without decoding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from rich.table import Table

from methods import registry
from methods.rules.base import Rule
from plots.replay import render_replay
from results.metrics.replay import COLUMNS, default_values, replay
from results.store.errors import StoreError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.session import Session
    from results.store.traces import Threshold


def replay_cells(cells: Sequence[Cell], labels: Sequence[str], session: Session) -> int:
    """Print acceptance against the threshold for each cell and write it to <output.dir>/replay. Returns 0. Raises
    ValueError for a cell without a complete trace or without a threshold."""
    folder = session.settings.output.dir / "replay"
    for cell, label in zip(cells, labels, strict=True):
        trace, threshold = load_trace(cell, label, session)
        if threshold is None:
            raise ValueError(f"{label}: rule={cell.rule.name} has no threshold at temperature "
                             f"{cell.decoding.temperature:g} to replay its trace at; rules that have one, some of them "
                             f"only above temperature 0: {', '.join(with_threshold())}")
        values = default_values(trace, threshold) if session.settings.replay == "auto" else session.settings.values
        rows = replay(trace, threshold, values)
        print_rows(rows, threshold, label, session)
        file, figure = write_rows(rows, threshold, label, folder / cell.name)
        session.print(f"written: {file}, {figure}", soft_wrap=True)
    return 0


def with_threshold() -> list[str]:
    """The rules whose acceptance follows one threshold."""
    return [name for name in registry.names("rules")
            if registry.rule(name).threshold_view is not Rule.threshold_view]


def load_trace(cell: Cell, label: str, session: Session) -> tuple[pd.DataFrame, Threshold | None]:
    """A cell's trace and its rule's threshold. Raises ValueError for a trace that is missing, unreadable or lacks a
    measured prompt."""
    folder, traces = session.folder(cell), session.traces(cell)
    try:
        threshold, trace = traces.threshold(), traces.frame(COLUMNS)
        measured = {sample.id for sample in folder.good_samples()}
    except StoreError as error:
        raise ValueError(str(error)) from error
    if missing := len(measured - set(trace["prompt"].unique())):
        reason = f" ({reason})" if (reason := traces.failure()) else ""
        raise ValueError(f"{label}: {missing} of {len(measured)} prompts are not in its trace{reason}; run the cell "
                          "again with trace=true")
    return trace, threshold


def print_rows(rows: pd.DataFrame, threshold: Threshold, label: str, session: Session) -> None:
    """Print one line per threshold, that of the traced run in bold."""
    session.print(f"{label}: traced at {threshold.name} = {threshold.value:g}, first order")
    table = Table(threshold.name, "acceptance", "95%", "accepted length")
    for row in rows.to_dict("records"):
        interval = f"[{row['acceptance_low']:.1%}, {row['acceptance_high']:.1%}]"
        table.add_row(f"{row['threshold']:.4g}", f"{row['acceptance']:.1%}", interval, f"{row['accept_len']:.2f}",
                      style="bold" if row["threshold"] == threshold.value else "")
    session.print(table)


def write_rows(rows: pd.DataFrame, threshold: Threshold, label: str, stem: Path) -> tuple[Path, Path]:
    """Write <stem>.csv and the figure. Returns the paths of the table and of the PNG."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    file = stem.with_name(f"{stem.name}.csv")
    rows.to_csv(file, index=False)
    png, *_ = render_replay(rows, threshold, label, stem)
    return file, png
