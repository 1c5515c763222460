"""`replay=auto` or `replay=[0.8,0.9]`: acceptance of traced cells at other thresholds, without decoding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from rich.table import Table

from bench.config.errors import ConfigError
from bench.run.asked import AskedFolder, asked_folder
from bench.run.console import console
from plots.replay import render_replay
from results.metrics.replay import COLUMNS, default_values, replay
from results.store.errors import StoreError
from results.store.traces import Threshold, TraceFolder

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Settings
    from results.store.cells import Store


def replay_cells(cells: Sequence[Cell], labels: Sequence[str], settings: Settings, store: Store) -> int:
    """Print acceptance against the threshold for each cell and write it to <output.dir>/replay. Returns 0. Raises
    ConfigError for a cell without a complete trace or without a threshold."""
    folder = settings.output.dir / "replay"
    for cell, label in zip(cells, labels, strict=True):
        trace, threshold = load_trace(asked_folder(cell, store), label)
        if threshold is None:
            raise ConfigError(f"{label}: rule={cell.rule.name} has no threshold to replay its trace at")
        values = default_values(trace, threshold) if settings.replay == "auto" else settings.values
        rows = replay(trace, threshold, values)
        print_rows(rows, threshold, label)
        write_rows(rows, threshold, label, folder / cell.name)
    return 0


def load_trace(folder: AskedFolder, label: str) -> tuple[pd.DataFrame, Threshold | None]:
    """A cell's trace and its rule's threshold. Raises ConfigError for a trace that is missing, unreadable or lacks a
    measured prompt."""
    traces = TraceFolder(folder, folder.selection())
    try:
        threshold, trace = traces.threshold(), traces.frame(COLUMNS)
        measured = {sample.id for sample in folder.good_samples()}
    except StoreError as error:
        raise ConfigError(str(error)) from error
    if missing := len(measured - set(trace["prompt"].unique())):
        reason = f" ({reason})" if (reason := traces.failure()) else ""
        raise ConfigError(f"{label}: {missing} of {len(measured)} prompts are not in its trace{reason}; run the cell "
                          "again with trace=true")
    return trace, threshold


def print_rows(rows: pd.DataFrame, threshold: Threshold, label: str) -> None:
    """Print one line per threshold, that of the traced run in bold."""
    console().print(f"{label}: traced at {threshold.name} = {threshold.value:g}, first order", highlight=False)
    table = Table(threshold.name, "acceptance", "95%", "accepted length")
    for row in rows.to_dict("records"):
        interval = f"[{row['acceptance_low']:.1%}, {row['acceptance_high']:.1%}]"
        table.add_row(f"{row['threshold']:.4g}", f"{row['acceptance']:.1%}", interval, f"{row['accept_len']:.2f}",
                      style="bold" if row["threshold"] == threshold.value else "")
    console().print(table)


def write_rows(rows: pd.DataFrame, threshold: Threshold, label: str, stem: Path) -> None:
    """Write <stem>.csv and the figure."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    file = stem.with_name(f"{stem.name}.csv")
    rows.to_csv(file, index=False)
    png, *_ = render_replay(rows, threshold, label, stem)
    console().print(f"written: {file}, {png}", highlight=False, soft_wrap=True)
