"""One metric against another, with the curve of random allocation between two models: FSD, Figure 2."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

from plots.data import GAP, Measured, measured, summary
from plots.rules import looks
from plots.style import SOFT, Look, legend_of, panel_grid
from results.metrics.catalog import metric
from results.metrics.summary import Summary
from results.reports.figures import Pareto
from results.reports.grid import Grid, panels
from results.reports.spec import FigureSpec


def draw(pareto: Pareto, spec: FigureSpec, grid: Grid) -> Figure:
    """Draw one panel per entry of `panels`; error bars are 95% intervals. A thin line joins the series of `connect`, or
    the points of each entry of `lines`."""
    groups = pareto.left_out()
    places = [(", ".join(filter(None, (title, group))), at, left_out)
              for group, left_out in groups.items() for title, at in panels(spec, pareto.panels, len(groups))]
    figure, axes = panel_grid(len(places), columns=2)
    figure.set_figwidth(figure.get_figwidth() + _LEGEND_INCHES)
    for ax, (title, at, left_out) in zip(axes, places, strict=True):
        ax.set_title(title)
        ax.set_xlabel(metric(pareto.x).axis)
        ax.set_ylabel(metric(pareto.y).axis)
        if pareto.log:
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
            ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            ax.minorticks_off()
        _panel(ax, pareto, spec, grid, at, left_out)
    figure.legend(*legend_of(axes), loc="outside right upper",
                  title=f"at points: {pareto.series}" if pareto.lines else None)
    return figure


def _panel(
    ax: Axes, pareto: Pareto, spec: FigureSpec, grid: Grid, at: Mapping[str, str], left_out: set[str]
) -> None:
    cells_of = {label: [] if label in left_out else cells
                for label, cells in _cells_by_label(pareto, spec, grid, at).items()}
    if pareto.allocation:
        draft, target = (next((cell for cell in cells_of[label] if cell), None) for label in pareto.allocation)
        if draft and target and {pareto.x, pareto.y} <= set(_MIXED):
            xs, ys = random_allocation(draft, target, pareto.x, pareto.y)
            ax.plot(xs, ys, color=SOFT, lw=1, ls=(0, (1, 2)), zorder=1.5, label="random allocation")
    points = {label: [(measured(cell, pareto.x), measured(cell, pareto.y)) for cell in cells]
              for label, cells in cells_of.items()}
    connected = [point for label in pareto.connect for point in points[label]]
    shapes = looks(spec.axes[pareto.lines or pareto.series])
    for label, group in points.items() if pareto.lines else [("", connected)]:
        line = [(x or GAP, y or GAP) for x, y in group]
        ax.plot([x.value for x, _ in line], [y.value for _, y in line], lw=0.8, zorder=1.6,
                color=shapes[label].colour if pareto.lines else SOFT)
    names = _names(pareto, spec, at) if pareto.lines else {}
    if names:
        ax.margins(_NAME_MARGIN)
    for i, (label, group) in enumerate(points.items()):
        at_place: dict[tuple[float, float], list[str]] = {}
        for (x, y), name in zip(group, names.get(label, repeat("")), strict=False):  # a group leaves lines out
            if x is not None and y is not None:
                _draw_point(ax, x, y, shapes[label], label, ring=bool(names) and len(group) == 1)
                at_place.setdefault((x.value, y.value), []).append(name)
        if names and len(group) > 1:
            _write_names(ax, at_place, shapes[label].colour, _CORNERS[i % len(_CORNERS)])


def _write_names(ax: Axes, at_place: Mapping[tuple[float, float], list[str]], colour: str,
                 corner: tuple[int, int]) -> None:
    """Write what points of a line are, such as their thresholds, beside them; lines write to different corners."""
    right, above = corner
    for place, names in at_place.items():
        ax.annotate(", ".join(names), place, xytext=(4 * right, 4 * above), textcoords="offset points", fontsize=8,
                    color=colour, ha="left" if right > 0 else "right", va="bottom" if above > 0 else "top")


def _names(pareto: Pareto, spec: FigureSpec, at: Mapping[str, str]) -> dict[str, list[str]]:
    """Legend label -> the labels of the points of its line, in its order."""
    return {line.label: [label for label, _ in _line_places(pareto, spec, at, line.label)]
            for line in spec.axes[str(pareto.lines)]}


def _line_places(pareto: Pareto, spec: FigureSpec, at: Mapping[str, str],
                 line: str) -> list[tuple[str, dict[str, str]]]:
    """(label in the series, labels of every axis) of the points of a line that the report asks for."""
    asked = {point.coords for point in spec.points()}
    labels = dict.fromkeys(entry.label for entry in spec.axes[pareto.series])
    places = [(label, {**at, str(pareto.lines): line, pareto.series: label}) for label in labels]
    return [(label, place) for label, place in places if tuple(place[axis] for axis in spec.axes) in asked]


def _cells_by_label(
    pareto: Pareto, spec: FigureSpec, grid: Grid, at: Mapping[str, str]
) -> dict[str, list[Summary | None]]:
    """Legend label -> summaries, None where not measured; those of a line in its order."""
    series = [entry.label for entry in spec.axes[pareto.series]]
    if not pareto.lines:
        return {label: [summary(spec, grid, {**at, pareto.series: label})] for label in series}
    return {line.label: [summary(spec, grid, place) for _, place in _line_places(pareto, spec, at, line.label)]
            for line in spec.axes[pareto.lines]}


def _draw_point(ax: Axes, x: Measured, y: Measured, shape: Look, label: str, ring: bool = False) -> None:
    """`ring`: around the points of lines that it may coincide with, so that both are seen."""
    filling: dict[str, Any] = {"markersize": 6.5, "markeredgecolor": "white", "markeredgewidth": 0.6}
    if ring:
        filling = {"markersize": 11, "markerfacecolor": "none", "markeredgewidth": 1.2}
    ax.errorbar(x.value, y.value, xerr=[[length] for length in x.below_above], yerr=[[d] for d in y.below_above],
                color=shape.colour, marker=shape.marker, linestyle="none", elinewidth=0.9, label=label, **filling)


_CORNERS = ((1, 1), (1, -1), (-1, 1), (-1, -1))
_LEGEND_INCHES = 1.6
_NAME_MARGIN = 0.14
"""Of each axis, around the points: room for the names beside them."""
_MIXED = ("accuracy", "tokens_per_s")


def random_allocation(
    draft: Summary, target: Summary, x: str, y: str, steps: int = 51
) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy and tokens/s, in printed units, if a share from 0 to 1 of the prompts is answered by the draft model
    alone and the rest by the target alone. Accuracy is the mean over prompts, speed total tokens over total time."""
    share = np.linspace(0, 1, steps)

    def mixed(of_draft: float | None, of_target: float | None) -> np.ndarray:
        """[steps] mean over the prompts of a quantity whose means per prompt are given."""
        drafts, targets = (np.nan if one is None else one for one in (of_draft, of_target))
        return share * drafts + (1 - share) * targets

    tokens = [cell.tokens / cell.n for cell in (draft, target)]
    seconds = [count / (cell.tokens_per_s or np.nan) for count, cell in zip(tokens, (draft, target), strict=True)]
    curves = {
        "accuracy": metric("accuracy").shown(1) * mixed(draft.accuracy, target.accuracy),
        "tokens_per_s": mixed(*tokens) / mixed(*seconds),
    }
    return curves[x], curves[y]
