"""`replay=auto` or `replay=[0.8,0.9]`: what the traced points would have kept at other thresholds, without decoding."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
from rich.table import Table

from bench.config.cell import Cell
from bench.config.errors import ConfigError
from bench.config.settings import Settings
from bench.run.console import console
from plots.render import save
from plots.replay import draw
from plots.style import style
from results.metrics.replay import COLUMNS, default_values, replay
from results.store.cells import Store
from results.store.errors import StoreError
from results.store.traces import TraceFolder


def replay_cells(cells: Sequence[Cell], labels: Sequence[str], settings: Settings, store: Store) -> int:
    """Print, and write to <output.dir>/replay, acceptance against the threshold of each cell; 0. Raises ConfigError for
    a cell without traces or without a threshold."""
    folder = settings.output.dir / "replay"
    for cell, label in zip(cells, labels, strict=True):
        traces = TraceFolder(store.cell(cell.name))
        try:
            threshold, trace = traces.threshold(), traces.frame(COLUMNS)
            measured = {sample.id for sample in store.cell(cell.name).good_samples()}
        except StoreError as error:
            raise ConfigError(str(error)) from error
        if missing := len(measured - set(trace["prompt"].unique())):
            reason = f" ({reason})" if (reason := traces.failure()) else ""
            raise ConfigError(f"{label}: {missing} of {len(measured)} prompts are not in its trace{reason}: run the "
                              "point with trace=true again")
        if threshold is None:
            raise ConfigError(f"{label}: rule={cell.rule.name} has no threshold that a trace could be replayed at")
        values = default_values(trace, threshold) if settings.replay == "auto" else settings.values
        found = replay(trace, threshold, values)
        console().print(f"{label}: traced at {threshold.name} = {threshold.value:g}, first order", highlight=False)
        table = Table(threshold.name, "acceptance", "95%", "accepted length")
        for row in found.itertuples():
            table.add_row(f"{row.threshold:.4g}", f"{row.acceptance:.1%}",
                          f"[{row.acceptance_low:.1%}, {row.acceptance_high:.1%}]", f"{row.accept_len:.2f}",
                          style="bold" if row.threshold == threshold.value else "")
        console().print(table)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{cell.name}.csv"
        found.to_csv(file, index=False)
        with style(), mpl.rc_context({"svg.hashsalt": cell.name}):
            paths = save(draw(found, threshold, label), folder / cell.name)
        console().print(f"written: {file}, {paths[0]}", highlight=False, soft_wrap=True)
    return 0
