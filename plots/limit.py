"""τ against distortion: lossless decoding over temperatures, the limit of any rule, and each rule by its name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, StrMethodFormatter

from plots.data import Measured, measured, summary
from plots.style import BLUE, INK, ORANGE, SOFT, VERMILLION, panel_grid
from results.metrics.catalog import metric
from results.metrics.distortion import efficiency
from results.reports.figures import Limit
from results.reports.grid import Grid, panels
from results.reports.spec import FigureSpec

Place = tuple[Measured, Measured]
_TICKS = (0, 0.02, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2, 3)
_LINE_POINTS = 11.5
"""Least distance of two names in the column beside a panel."""


def draw(limit: Limit, spec: FigureSpec, grid: Grid) -> Figure:
    """Draw one panel per entry of `panels`; the horizontal axis is the square root of D, so that 0 and small ones are
    told apart. Names stand in a column at the right, joined to their points."""
    places = list(panels(spec, limit.panels))
    figure, axes = panel_grid(len(places), columns=1, inches=(6.4, 3.9))
    for ax, (title, at) in zip(axes, places, strict=True):
        labels = dict.fromkeys(entry.label for entry in spec.axes[limit.series])
        found = {label: (x, y) for label in labels
                 if (cell := summary(spec, grid, {**at, limit.series: label})) is not None
                 and (x := measured(cell, "distortion")) is not None and (y := measured(cell, limit.y)) is not None}
        ax.set_title(title)
        ax.set_xlabel("distortion D (nats a token, square-root scale)")
        ax.set_ylabel(metric(limit.y).axis)
        ax.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
        _panel(ax, limit, found)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=3)
    return figure


def _panel(ax: Axes, limit: Limit, found: Mapping[str, Place]) -> None:
    curves = {"the limit (tilted)": (limit.limit, BLUE, "-", "o"),
              "lossless, T from 1 to 0": (limit.lossless, VERMILLION, (0, (5, 1.6)), "s")}
    for name, (labels, colour, dash, marker) in curves.items():
        start = [limit.lossless[0]] if labels is limit.limit else []
        points = sorted((found[label][0].value, found[label][1].value) for label in [*start, *labels] if label in found)
        ax.plot([x for x, _ in points], [y for _, y in points], color=colour, ls=dash, marker=marker, markersize=3.5,
                lw=1.6, label=name, clip_on=False)
    rules = {label: place for label, place in found.items() if label not in (*limit.lossless, *limit.limit)}
    for label, (x, y) in rules.items():
        ax.errorbar(x.value, y.value, xerr=[[arm] for arm in x.below_above], yerr=[[arm] for arm in y.below_above],
                    color=INK if not label.startswith("random") else SOFT, marker="D", markersize=4.5, elinewidth=0.6,
                    clip_on=False, ls="none", label="rules" if label == next(iter(rules)) else None)
    widest = max((x.high for x, _ in found.values()), default=1.0)
    ax.set_xlim(0, widest * 1.05)
    ax.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= widest * 1.05]))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    if limit.lossless[0] in found:
        _names(ax, limit, found, rules)


def _names(ax: Axes, limit: Limit, found: Mapping[str, Place], rules: Mapping[str, Place]) -> None:
    """The names of the rules in a column, in the order of the points' heights, at least a line apart."""
    start = _values(found[limit.lossless[0]])
    curve = [_values(found[label]) for label in limit.limit if label in found]
    ordered = sorted(rules, key=lambda label: rules[label][1].value)
    low, high = ax.get_ylim()
    line = _LINE_POINTS / 72 / 2.9 * (high - low)  # an axes is about 2.9 inches high
    heights = [rules[label][1].value for label in ordered]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + line)
    over = max(0.0, heights[-1] - high) if heights else 0.0
    for i in range(len(heights) - 1, -1, -1):  # what would stand above the panel moves down, and pushes others
        heights[i] = min(heights[i], high - (len(heights) - 1 - i) * line if over else heights[i])
    for label, height in zip(ordered, heights, strict=True):
        share = efficiency(_values(rules[label]), start, curve)
        text = label if share is None or share < 0 else f"{label} ({share:.0%})"
        ax.annotate(text, _values(rules[label]), xytext=(1.03, height), textcoords=("axes fraction", "data"),
                    fontsize=8.5, va="center", annotation_clip=False,
                    arrowprops={"arrowstyle": "-", "color": ORANGE if not label.startswith("random") else SOFT,
                                "lw": 0.5, "alpha": 0.7, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)})


def _values(place: Place) -> tuple[float, float]:
    return place[0].value, place[1].value
