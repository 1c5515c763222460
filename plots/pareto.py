"""One metric against another, with the curve of random allocation between two models: FSD, Figure
2."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

from plots import labels
from plots.data import GAP, At, Data, Measured
from plots.rules import looks
from plots.style import SOFT, Look, legend_of, panel_grid
from results.metrics.catalog import metric
from results.reports.grid import panels


def draw(data: Data) -> Figure:
    """Draw one panel per entry of `panels`; error bars are 95% intervals. A thin line joins the
    series of `connect`, or the points of each entry of `lines`."""
    pareto = data.figure
    parts = _parts(data)
    places = [(title, at, part) for part in parts for title, at in panels(data.spec, pareto.panels)]
    figure, axes = panel_grid(len(places), columns=2)
    figure.set_figwidth(figure.get_figwidth() + _LEGEND_INCHES)
    names: list[tuple[Axes, labels.Name]] = []
    taken: list[tuple[Axes, float, float]] = []
    for ax, (title, at, part) in zip(axes, places, strict=True):
        ax.set_title(f"{title}, {parts[part]}" if parts[part] else title)
        ax.set_xlabel(metric(pareto.x).axis)
        ax.set_ylabel(metric(pareto.y).axis)
        if pareto.log:
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
            ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            ax.minorticks_off()
        written, points = _panel(ax, data, at, part)
        names += [(ax, name) for name in written]
        taken += [(ax, x, y) for x, y in points]
    handles, series = legend_of(axes)
    figure.legend(
        handles,
        [labels.named(label) for label in series],
        loc="outside right upper",
        title=f"at points: {pareto.series}" if names else None,
    )
    labels.write(figure, names, taken)
    return figure


def _parts(data: Data) -> dict[frozenset[str], str]:
    """The lines that are drawn together -> what to say of them: all, or without those whose label
    ends as `apart` says and with these; what has neither sibling stands in both."""
    pareto = data.figure
    lines = frozenset(entry.label for entry in data.spec.axes[pareto.lines or pareto.series])
    if not pareto.apart:
        return {lines: ""}
    apart = {label for label in lines if label.endswith(pareto.apart)}
    whole = {label.removesuffix(pareto.apart) for label in apart} & lines
    return {lines - apart: "", lines - whole: pareto.apart.strip(", ")}


def _panel(
    ax: Axes, data: Data, at: At, part: frozenset[str]
) -> tuple[list[labels.Name], list[tuple[float, float]]]:
    """Draw a panel with the lines of `part`. Returns the names of its points, and the points."""
    pareto = data.figure
    cells_of = {label: cells for label, cells in _cells_by_label(data, at).items() if label in part}
    if pareto.allocation:
        draft, target = (
            next((cell for _, cell in cells_of[label] if data.is_measured(cell)), None)
            for label in pareto.allocation
        )
        if draft and target and {pareto.x, pareto.y} <= set(_MIXED):
            xs, ys = random_allocation(data, draft, target)
            ax.plot(xs, ys, color=SOFT, lw=1, ls=(0, (1, 2)), zorder=1.5, label="random allocation")
    points = {
        label: [(data.measured(cell, pareto.x), data.measured(cell, pareto.y)) for _, cell in cells]
        for label, cells in cells_of.items()
    }
    connected = [point for label in pareto.connect for point in points[label]]
    shapes = looks(data.spec.axes[pareto.lines or pareto.series])
    for label, group in points.items() if pareto.lines else [("", connected)]:
        line = [(x or GAP, y or GAP) for x, y in group]
        ax.plot(
            [x.value for x, _ in line],
            [y.value for _, y in line],
            lw=0.8,
            zorder=1.6,
            color=shapes[label].colour if pareto.lines else SOFT,
        )
    if pareto.lines:
        ax.margins(_NAME_MARGIN)
    named = pareto.lines and sum(len(group) > 1 for group in points.values()) <= _NAMED_LINES
    names: list[labels.Name] = []
    taken: list[tuple[float, float]] = []
    for label, group in points.items():
        at_place: dict[tuple[float, float], list[str]] = {}
        for (x, y), (name, _) in zip(group, cells_of[label], strict=True):
            if x is not None and y is not None:
                _draw_point(
                    ax, x, y, shapes[label], label, ring=bool(pareto.lines) and len(group) == 1
                )
                at_place.setdefault((x.value, y.value), []).append(name)
        taken += at_place
        if named and len(group) > 1:
            names += [
                labels.Name(", ".join(texts), place, shapes[label].colour)
                for place, texts in at_place.items()
            ]
    if metric(pareto.y).unit == "%":
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, -_EDGE), min(high, 100 + _EDGE))
    return names, taken


def _cells_by_label(data: Data, at: At) -> dict[str, list[tuple[str, At]]]:
    """Legend label -> (label in the series, labels of every axis) of its points: of a line those
    that the report asks for, in the order of the series."""
    pareto, axes = data.figure, data.spec.axes
    series = list(dict.fromkeys(entry.label for entry in axes[pareto.series]))
    if not pareto.lines:
        return {label: [(label, {**at, pareto.series: label})] for label in series}
    asked = {point.coords for point in data.spec.points()}
    places = {
        line.label: [
            (label, {**at, pareto.lines: line.label, pareto.series: label}) for label in series
        ]
        for line in axes[pareto.lines]
    }
    return {
        line: [
            (label, cell) for label, cell in cells if tuple(cell[axis] for axis in axes) in asked
        ]
        for line, cells in places.items()
    }


def _draw_point(
    ax: Axes, x: Measured, y: Measured, shape: Look, label: str, ring: bool = False
) -> None:
    """`ring`: around the points of lines that it may coincide with, so that both are seen."""
    filling: dict[str, Any] = {
        "markersize": 6.5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }
    if ring:
        filling = {"markersize": 11, "markerfacecolor": "none", "markeredgewidth": 1.2}
    ax.errorbar(
        x.value,
        y.value,
        xerr=[[length] for length in x.below_above],
        yerr=[[d] for d in y.below_above],
        color=shape.colour,
        marker=shape.marker,
        linestyle="none",
        elinewidth=0.7,
        alpha=0.9,
        label=label,
        **filling,
    )


_NAMED_LINES = 2
"""More lines have no names at their points."""
_EDGE = 4
"""Percentage points below 0 and above 100, in which the points at these ends stand."""
_LEGEND_INCHES = 2.2
_NAME_MARGIN = 0.14
"""Of each axis, around the points: room for the names beside them."""
_MIXED = ("accuracy", "tokens_per_s")


def random_allocation(data: Data, draft: At, target: At, steps: int = 51) -> list[np.ndarray]:
    """The metrics of both axes, accuracy and tokens/s in printed units, if a share from 0 to 1 of
    the prompts is answered by the draft model alone and the rest by the target alone. Accuracy is
    the mean over prompts, speed total tokens over total time."""
    share = np.linspace(0, 1, steps)

    def known(cell: At, name: str) -> float:
        value = data.value(cell, name)
        return np.nan if value is None else value

    def mixed(of_draft: float, of_target: float) -> np.ndarray:
        """[steps] mean over the prompts of a quantity whose means per prompt are given."""
        return share * of_draft + (1 - share) * of_target

    tokens = [known(cell, "tokens") / known(cell, "n") for cell in (draft, target)]
    seconds = [
        count / known(cell, "tokens_per_s")
        for count, cell in zip(tokens, (draft, target), strict=True)
    ]
    accuracy = metric("accuracy").shown(1) * mixed(
        known(draft, "accuracy"), known(target, "accuracy")
    )
    curves = dict(zip(_MIXED, (accuracy, mixed(*tokens) / mixed(*seconds)), strict=True))
    return [curves[data.figure.x], curves[data.figure.y]]
