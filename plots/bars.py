"""Grouped bars with 95% intervals: MARS, Figure 3; DropMatch, Figure 1; ARC-Decode, Figure 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from plots.data import At, Data, Measured
from plots.labels import named
from plots.rules import looks
from plots.style import INK, SOFT, Look, panel_grid
from results.reports.columns import Column
from results.reports.frame import mean_interval
from results.reports.grid import panels

_REFERENCE = ("speedup", "recovery")


def draw(data: Data) -> Figure:
    """Draw one panel per entry of `panels` and metric that has a number, one cluster per entry of
    `clusters`, one bar per entry of `series`. A missing value is marked with a cross, so that it
    is not read as zero; where the report asks for no cell, nothing stands."""
    bars, spec = data.figure, data.spec
    every = _every_panel(data)
    places = [panel for panel in every if _has_numbers(data, *panel[1:])] or every
    series = looks(spec.axes[bars.series])
    widest = max(len(_clusters(data, column)) for column in bars.y)
    width = max(3.2, 0.9 + 0.28 * widest * (len(series) + 1))
    figure, axes = panel_grid(len(places), columns=max(1, int(12 // width)), inches=(width, 3.2))
    for ax, (title, at, column) in zip(axes, places, strict=True):
        clusters = _clusters(data, column)
        ax.set_title(title)
        ax.set_ylabel(column.metric.axis)
        ax.set_xticks(range(len(clusters)), clusters)
        ax.tick_params(axis="x", length=0)
        if column.metric.name in _REFERENCE:
            ax.axhline(column.metric.shown(1), color=INK, lw=0.8, zorder=1.5)
        asked = [
            label
            for label in series
            if any(
                _cells(data, {**at, bars.series: label, bars.clusters: cluster})
                for cluster in clusters
            )
        ]
        for i, label in enumerate(asked):
            place = -0.4 + 0.8 / len(asked) * (i + 0.5)
            _draw_series(
                ax, data, column, {**at, bars.series: label}, series[label], place, 0.7 / len(asked)
            )
        _say_unjudged(ax, data, column, at)
    widest_label = 0.7 + 0.08 * max(map(len, series))  # inches, with its patch and the gap
    handles = [Patch(label=named(label), **_fill(shape)) for label, shape in series.items()]
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=min(len(series), max(1, int(figure.get_figwidth() / widest_label))),
    )
    return figure


def _every_panel(data: Data) -> list[tuple[str, At, Column]]:
    """Title, labels and metric of each panel."""
    bars = data.figure
    return [
        (title, at, column)
        for title, at in panels(data.spec, bars.panels, len(bars.y))
        for column in bars.y
    ]


def _has_numbers(data: Data, at: At, column: Column) -> bool:
    bars = data.figure
    return any(
        _mean(data, column, _cells(data, {**at, bars.series: entry.label, bars.clusters: cluster}))
        for entry in data.spec.axes[bars.series]
        for cluster in _clusters(data, column)
    )


def left_out(data: Data) -> str:
    """Which panels are not drawn, and why, as far as that is known; without any number all are."""
    every = _every_panel(data)
    absent = [panel for panel in every if not _has_numbers(data, *panel[1:])]
    if len(absent) == len(every):
        return ""
    said = []
    for title, at, column in absent:
        lines = data.lines(at, value_name=column.metric.name)
        reasons = sorted(set(lines["unjudged"]) - {""}) if "unjudged" in lines else []
        name = ", ".join(filter(None, [title, column.metric.label]))
        said.append(f"{name} ({', '.join(map(str, reasons)) or 'not measured'})")
    return f"no panel: {'; '.join(said)}" if said else ""


def _fill(shape: Look) -> dict[str, Any]:
    """Colour and hatch of the bars of a series."""
    return {"facecolor": shape.colour, "hatch": shape.hatch, "edgecolor": "white", "lw": 0}


def _clusters(data: Data, column: Column) -> list[str]:
    """The labels of the clusters in the panel of a metric."""
    axis = data.figure.clusters
    labels = dict.fromkeys(entry.label for entry in data.spec.axes[axis])
    return [label for label in labels if column.allows({axis: label})]


def _say_unjudged(ax: Axes, data: Data, column: Column, at: At) -> None:
    """Say in the panel of an LLM judge's grades why there are none."""
    lines = data.lines(at, value_name=column.metric.name)
    reasons = set(lines["unjudged"]) - {""} if "unjudged" in lines else set()
    if reasons and not ax.patches:
        ax.text(
            0.5, 0.5, ", ".join(sorted(reasons)), ha="center", transform=ax.transAxes, color=SOFT
        )
        ax.set_yticks([])


def _draw_series(
    ax: Axes, data: Data, column: Column, at: At, shape: Look, place: float, width: float
) -> None:
    """Draw the bars of one entry of `series`, at `place` beside the middle of each cluster."""
    bars, clusters = data.figure, _clusters(data, column)
    places = np.arange(len(clusters)) + place
    cells = [_cells(data, {**at, bars.clusters: cluster}) for cluster in clusters]
    points = [_mean(data, column, asked) for asked in cells]
    drawn = [(x, point) for x, point in zip(places, points, strict=True) if point is not None]
    xs, ys = [x for x, _ in drawn], [point.value for _, point in drawn]
    arms = np.array([point.below_above for _, point in drawn]).reshape(-1, 2).T
    ax.bar(xs, ys, width, label=at[bars.series], **_fill(shape))
    ax.errorbar(xs, ys, yerr=arms, color=INK, linestyle="none", elinewidth=0.8)
    empty = [
        x for x, point, asked in zip(places, points, cells, strict=True) if asked and point is None
    ]
    if empty:
        ax.plot(empty, [0] * len(empty), "x", color=SOFT, markersize=5, clip_on=False)


def _cells(data: Data, at: At) -> list[At]:
    """The labels of the cells behind a bar: one, or one per entry of `mean`; without those that the
    report does not ask for."""
    mean, axes = data.figure.mean, data.spec.axes
    places = [{**at, mean: entry.label} for entry in axes[mean]] if mean else [at]
    asked = {point.coords for point in data.spec.points()}
    return [place for place in places if tuple(place[axis] for axis in axes) in asked]


def _mean(data: Data, column: Column, cells: list[At]) -> Measured | None:
    """The mean over the cells, with its interval; None where one of them was not measured."""
    points = [data.measured(at, column.metric.name) for at in cells]
    known = [point for point in points if point is not None]
    if not known or len(known) < len(points):
        return None
    if len(known) == 1:
        return known[0]
    mean = sum(point.value for point in known) / len(known)
    ends = [(point.low, point.high) for point in known]
    low, high = mean_interval(mean, ends, column.measure.unit == "×") or (mean, mean)
    return Measured(mean, low, high)
