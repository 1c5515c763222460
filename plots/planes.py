"""The rows of a table in planes of two metrics each: what a dial trades."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.data import GAP, At, Data
from plots.render import save
from plots.rules import looks_of
from plots.style import legend_of, note, panel_grid, style
from results.metrics.catalog import CLOCKED, metric
from results.reports.captions import figure_caption
from results.reports.figures import Planes
from results.reports.frame import cells_frame
from results.reports.grid import Grid, panels
from results.reports.spec import TableSpec

HANDLE_INCHES, LETTER_INCHES = 0.6, 0.075
"""Of an entry of the legend."""


def render_planes(
    planes: Planes, spec: TableSpec, grid: Grid, folder: Path, frame: pd.DataFrame | None = None
) -> list[Path]:
    """Write <name>.png, .pdf and .svg into `folder` and return their paths. `frame`: as in
    `plots.render.render`."""
    with style(salt=spec.name):
        figure = draw(
            planes,
            Data(spec, cells_frame(spec, planes.metrics(), grid) if frame is None else frame),
        )
        note(figure, figure_caption(spec, grid, CLOCKED, "bars: 95% intervals"))
        return save(figure, folder / spec.name, folder / f"{spec.name}.csv")


def draw(planes: Planes, data: Data) -> Figure:
    """A panel for each place of the other axes and each pair of metrics, x by x."""
    spec = data.spec
    line_axis = next(
        axis
        for axis in spec.axes
        if any(
            entry.label in labels for labels in planes.lines.values() for entry in spec.axes[axis]
        )
    )
    others = tuple(axis for axis in spec.axes if axis != line_axis)
    places = [
        (title, at, x, y)
        for title, at in panels(spec, others)
        for y, x in product(planes.y, planes.x)
    ]
    figure, axes = panel_grid(len(places), columns=len(planes.x) if len(planes.x) > 1 else 3)
    for ax, (title, at, x, y) in zip(axes, places, strict=True):
        ax.set_title(title if len(panels(spec, others)) > 1 else "")
        ax.set_xlabel(metric(x).axis)
        ax.set_ylabel(metric(y).axis)
        _panel(ax, planes, data, at, line_axis, (x, y))
    columns = int(
        figure.get_figwidth() / (HANDLE_INCHES + LETTER_INCHES * max(map(len, planes.lines)))
    )
    figure.legend(*legend_of(axes), loc="outside upper center", ncols=min(6, max(1, columns)))
    return figure


def _panel(ax: Axes, planes: Planes, data: Data, at: At, axis: str, names: tuple[str, str]) -> None:
    """`axis`: that of the lines."""
    rules = {entry.label: entry.rule for entry in data.spec.axes[axis]}
    shapes = looks_of(
        {
            title: next(filter(None, map(rules.get, labels)), "")
            for title, labels in planes.lines.items()
        }
    )
    for i, (title, labels) in enumerate(planes.lines.items()):
        points = [
            tuple(data.measured({**at, axis: label}, name) or GAP for name in names)
            for label in labels
        ]
        shape, wide = shapes[title], 2.2 if i == 0 else 1.0
        ax.errorbar(
            [x.value for x, _ in points],
            [y.value for _, y in points],
            xerr=list(zip(*(x.below_above for x, _ in points), strict=True)),
            yerr=list(zip(*(y.below_above for _, y in points), strict=True)),
            color=shape.colour,
            marker=shape.marker,
            ls=shape.dash,
            lw=wide,
            elinewidth=0.5,
            markersize=4.5,
            label=title,
            zorder=3 if i == 0 else 2,
        )
