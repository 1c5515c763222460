"""Throughput and latency of batches on measured machines."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from plots.render import save
from plots.style import look, note, panel_grid, style
from results.reports.kinds import COLUMNS, Serving


def render(report: Serving, frame: pd.DataFrame, folder: Path) -> list[Path]:
    """Write <name>.png, .pdf and .svg: a row of panels for each machine, a line for each method."""
    looks = {arm: look(index) for index, arm in enumerate(frame["arm"].unique())}
    machines, metrics = frame["machine"].unique(), COLUMNS[3:]
    with style(salt=report.name):
        figure, axes = panel_grid(len(machines) * len(metrics), columns=len(metrics), inches=(3.4, 2.7))
        places = [(machine, metric) for machine in machines for metric in metrics]
        for ax, (machine, metric) in zip(axes, places, strict=True):
            own = frame[frame["machine"] == machine]
            for arm, shape in looks.items():
                line = own[own["arm"] == arm]
                ax.plot(line["batch"], line[metric], color=shape.colour, marker=shape.marker, ls=shape.dash)
            ax.set(xscale="log", yscale="log", xlabel="answers in a batch", ylabel=metric)
            ax.set_title(machine if metric == metrics[0] else "")
            ax.minorticks_off()
            ax.set_xticks(own["batch"].unique(), own["batch"].unique())
        figure.legend(handles=[*axes[0].lines], labels=[*looks], loc="outside upper left", ncols=len(looks))
        note(figure, report.about)
        return save(figure, folder / report.name)
