"""What a rule's Δτ over the lossless rule consists of, as stacked bars, with its quality beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from plots.data import measured, summary
from plots.style import BLUE, GREY, INK, ORANGE, SOFT, panel_grid
from results.metrics.catalog import metric
from results.metrics.summary import Summary
from results.metrics.tau_gain import PARTS
from results.reports.figures import Gains
from results.reports.grid import Grid, panels
from results.reports.spec import FigureSpec

FILLS = {"tau_gain_relaxed": (BLUE, ""), "tau_gain_greedier": (ORANGE, "////"), "tau_gain_q": (GREY, "....")}
"""Part -> colour and hatch: told apart in greyscale, too."""
UNKNOWN = ("#e3e4e7", "xxxx")
_ROW_INCHES, _WIDTH, _COLUMN = 0.27, 6.6, 52
"""Height of a bar and width of the figure in inches; width of a column beside the bars in points."""


def draw(gains: Gains, spec: FigureSpec, grid: Grid) -> Figure:
    """Draw one panel per entry of `panels`, one bar per entry of `series`."""
    rules = list(dict.fromkeys(entry.label for entry in spec.axes[gains.series]))
    measured_at = {title: {rule: cell for rule in rules
                           if (cell := summary(spec, grid, {**at, gains.series: rule})) is not None}
                   for title, at in panels(spec, gains.panels)}
    return stacked(measured_at, gains.beside)


def stacked(cells: Mapping[str, Mapping[str, Summary]], beside: Sequence[str]) -> Figure:
    """Draw one panel per title, one bar per name in it, the largest Δτ at the top. Parts below 0 grow to the left. A
    mark shows Δτ with its interval; what could not be split is crossed out. `beside`: metrics at the right."""
    rows = max(map(len, cells.values()))
    figure, axes = panel_grid(len(cells), columns=1, inches=(_WIDTH, 0.9 + _ROW_INCHES * rows))
    for ax, (title, of_panel) in zip(axes, cells.items(), strict=True):
        ax.set_title(title, pad=18 if beside else None)
        _panel(ax, beside, dict(reversed(sorted(of_panel.items(), key=lambda item: -(item[1].tau_gain or 0.0)))))
    drawn = [cell for of_panel in cells.values() for cell in of_panel.values()]
    words = PARTS | ({} if all(map(_is_split, drawn)) else {"": "not split"})
    fills = {**FILLS, "": UNKNOWN}
    figure.legend(handles=[*(Patch(facecolor=fills[part][0], hatch=fills[part][1], edgecolor="white", lw=0, label=label)
                             for part, label in words.items()),
                           Line2D([], [], color=INK, marker="|", markersize=7, lw=0.8, label="Δτ, 95% interval")],
                  loc="outside upper left", ncols=5, handlelength=1.6, columnspacing=1.2)
    return figure


def _is_split(cell: Summary) -> bool:
    return cell.tau_gain is None or all(getattr(cell, part) is not None for part in PARTS)


def _panel(ax: Axes, beside: Sequence[str], cells: Mapping[str, Summary]) -> None:
    """The bars of these rules from the bottom to the top; at the right what stands beside them."""
    ax.grid(axis="x")
    ax.grid(False, axis="y")
    ax.set_xlabel("Δτ over the lossless rule (tokens a cycle)")
    ax.set_yticks(range(len(cells)), list(cells))
    ax.tick_params(axis="y", length=0)
    ax.axvline(0, color=INK, lw=0.8)
    for row, cell in enumerate(cells.values()):
        _bar(ax, row, cell)
        for place, name in enumerate(beside):
            shown, column = measured(cell, name), metric(name)
            text = "–" if shown is None else f"{shown.value:.{column.digits}f}{column.unit}"
            ax.annotate(text, (1, row), xycoords=("axes fraction", "data"), xytext=(_COLUMN * (place + 0.9), 0),
                        textcoords="offset points", ha="right", va="center")
    for place, name in enumerate(beside):
        ax.annotate(metric(name).label, (1, 1), xycoords="axes fraction", xytext=(_COLUMN * (place + 0.9), 4),
                    textcoords="offset points", ha="right", color=SOFT)


def _bar(ax: Axes, row: int, cell: Summary) -> None:
    """One bar: parts above 0 to the right, below 0 to the left."""
    whole = measured(cell, "tau_gain")
    if whole is None:
        return
    parts = {part: measured(cell, part) for part in PARTS}
    known = {part: found.value for part, found in parts.items() if found is not None}
    known[""] = whole.value - sum(known.values()) if len(known) < len(PARTS) else 0.0
    ends = {True: 0.0, False: 0.0}
    for part, value in filter(lambda item: item[1], known.items()):
        colour, hatch = FILLS.get(part, UNKNOWN)
        ax.barh(row, value, 0.62, left=ends[value > 0], facecolor=colour, hatch=hatch, edgecolor="white", lw=0)
        ends[value > 0] += value
    ax.errorbar(whole.value, row, xerr=[[arm] for arm in whole.below_above], color=INK, marker="|", markersize=9,
                elinewidth=0.8)
