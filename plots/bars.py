"""Grouped bars with 95% intervals: MARS, Figure 3."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.data import measured, panels, summary
from plots.style import INK, SOFT, look, panel_grid
from results.metrics.catalog import metric
from results.reports.figures import Bars
from results.reports.grid import Grid
from results.reports.spec import FigureSpec

_REFERENCE = ("speedup", "recovery")


def draw(bars: Bars, spec: FigureSpec, grid: Grid) -> Figure:
    """Draw one panel per entry of `panels`, one cluster per entry of `clusters`, one bar per entry of `series`. A
    missing value is marked with a cross, so that it is not read as zero."""
    places = panels(spec, bars.panels)
    clusters, series = spec.axes[bars.clusters], spec.axes[bars.series]
    width = max(3.2, 0.9 + 0.28 * len(clusters) * (len(series) + 1))
    figure, axes = panel_grid(len(places), columns=max(1, int(9 // width)), inches=(width, 3.2))
    for ax, (title, at) in zip(axes, places, strict=True):
        ax.set_title(title)
        ax.set_ylabel(metric(bars.y).axis)
        ax.set_xticks(range(len(clusters)), [entry.label for entry in clusters])
        ax.tick_params(axis="x", length=0)
        if bars.y in _REFERENCE:
            ax.axhline(metric(bars.y).shown(1), color=INK, lw=0.8, zorder=1.5)
        for i, entry in enumerate(series):
            _draw_series(ax, bars, spec, grid, {**at, bars.series: entry.label}, i)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=min(len(labels), max(2, int(figure.get_figwidth()))))
    return figure


def _draw_series(ax: Axes, bars: Bars, spec: FigureSpec, grid: Grid, at: Mapping[str, str], index: int) -> None:
    label, count, series_look = at[bars.series], len(spec.axes[bars.series]), look(index)
    step = 0.8 / count
    places = np.arange(len(spec.axes[bars.clusters])) - 0.4 + step * (index + 0.5)
    points = [measured(summary(spec, grid, {**at, bars.clusters: c.label}), bars.y) for c in spec.axes[bars.clusters]]
    drawn = [(x, point) for x, point in zip(places, points, strict=True) if point is not None]
    xs, ys = [x for x, _ in drawn], [point.value for _, point in drawn]
    arms = np.array([point.below_above for _, point in drawn]).reshape(-1, 2).T
    ax.bar(xs, ys, step * 0.88, color=series_look.colour, hatch=series_look.hatch, edgecolor="white", lw=0, label=label)
    ax.errorbar(xs, ys, yerr=arms, color=INK, linestyle="none", elinewidth=0.8)
    empty = [x for x, point in zip(places, points, strict=True) if point is None]
    if empty:
        ax.plot(empty, [0] * len(empty), "x", color=SOFT, markersize=5, clip_on=False)
