"""What a rule's Δτ over the lossless rule consists of, as stacked bars, with its quality beside
them."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from plots.data import At, Data
from plots.style import BLUE, GREY, INK, ORANGE, SOFT, panel_grid
from results.metrics.catalog import metric
from results.metrics.tau_gain import PARTS
from results.reports.grid import panels

FILLS = {
    "tau_gain_relaxed": (BLUE, ""),
    "tau_gain_greedier": (ORANGE, "////"),
    "tau_gain_q": (GREY, "...."),
}
"""Part -> colour and hatch: told apart in greyscale, too."""
UNKNOWN = ("#e3e4e7", "xxxx")
BESIDE = ("accuracy", "nll")
"""Metrics written at the right of each bar."""
BARS = ""
"""The legend names the intervals."""
_ROW_INCHES, _WIDTH, _COLUMN = 0.27, 6.6, 52
"""Height of a bar and width of the figure in inches; width of a column beside the bars in
points."""


def draw(data: Data) -> Figure:
    """Draw one panel per entry of `panels`, one bar per measured entry of `series`, the largest Δτ
    at the top. Parts below 0 grow to the left. A mark shows Δτ with its interval; what could not be
    split is crossed out."""
    labels = dict.fromkeys(entry.label for entry in data.spec.axes[data.figure.series])
    cells = {
        title: {
            label: cell
            for label in labels
            if data.is_measured(cell := {**at, data.figure.series: label})
        }
        for title, at in panels(data.spec, data.figure.panels)
    }
    rows = max(map(len, cells.values()))
    figure, axes = panel_grid(len(cells), columns=1, inches=(_WIDTH, 0.9 + _ROW_INCHES * rows))
    for ax, (title, of_panel) in zip(axes, cells.items(), strict=True):
        ax.set_title(title, pad=18)
        _panel(
            ax,
            data,
            dict(
                reversed(
                    sorted(
                        of_panel.items(), key=lambda item: -(data.value(item[1], "tau_gain") or 0.0)
                    )
                )
            ),
        )
    is_split = all(
        data.value(cell, part) is not None
        for of_panel in cells.values()
        for cell in of_panel.values()
        if data.value(cell, "tau_gain") is not None
        for part in PARTS
    )
    words = PARTS | ({} if is_split else {"": "not split"})
    fills = {**FILLS, "": UNKNOWN}
    figure.legend(
        handles=[
            *(
                Patch(
                    facecolor=fills[part][0],
                    hatch=fills[part][1],
                    edgecolor="white",
                    lw=0,
                    label=label,
                )
                for part, label in words.items()
            ),
            Line2D([], [], color=INK, marker="|", markersize=7, lw=0.8, label="Δτ, 95% interval"),
        ],
        loc="outside upper left",
        ncols=5,
        handlelength=1.6,
        columnspacing=1.2,
    )
    return figure


def _panel(ax: Axes, data: Data, cells: Mapping[str, At]) -> None:
    """The bars of these rules from the bottom to the top; at the right what stands beside them."""
    ax.grid(axis="x")
    ax.grid(False, axis="y")
    ax.set_xlabel("Δτ over the lossless rule (tokens a cycle)")
    ax.set_yticks(range(len(cells)), list(cells))
    ax.tick_params(axis="y", length=0)
    ax.axvline(0, color=INK, lw=0.8)
    for row, cell in enumerate(cells.values()):
        _bar(ax, row, data, cell)
        for place, name in enumerate(BESIDE):
            shown, column = data.measured(cell, name), metric(name)
            text = "–" if shown is None else f"{shown.value:.{column.digits}f}{column.unit}"
            ax.annotate(
                text,
                (1, row),
                xycoords=("axes fraction", "data"),
                xytext=(_COLUMN * (place + 0.9), 0),
                textcoords="offset points",
                ha="right",
                va="center",
            )
    for place, name in enumerate(BESIDE):
        ax.annotate(
            metric(name).label,
            (1, 1),
            xycoords="axes fraction",
            xytext=(_COLUMN * (place + 0.9), 4),
            textcoords="offset points",
            ha="right",
            color=SOFT,
        )


def _bar(ax: Axes, row: int, data: Data, cell: At) -> None:
    """One bar: parts above 0 to the right, below 0 to the left."""
    whole = data.measured(cell, "tau_gain")
    if whole is None:
        return
    known = {
        part: found.value for part in PARTS if (found := data.measured(cell, part)) is not None
    }
    known[""] = whole.value - sum(known.values()) if len(known) < len(PARTS) else 0.0
    ends = {True: 0.0, False: 0.0}
    for part, value in filter(lambda item: item[1], known.items()):
        colour, hatch = FILLS.get(part, UNKNOWN)
        ax.barh(
            row,
            value,
            0.62,
            left=ends[value > 0],
            facecolor=colour,
            hatch=hatch,
            edgecolor="white",
            lw=0,
        )
        ends[value > 0] += value
    ax.errorbar(
        whole.value,
        row,
        xerr=[[arm] for arm in whole.below_above],
        color=INK,
        marker="|",
        markersize=9,
        elinewidth=0.8,
    )
