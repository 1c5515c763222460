"""Figures of traced positions: the distribution of one quantity, or two plotted against each other (MARS, Figures 1
and 5; FSD, Figure 3)."""

from __future__ import annotations

from string import ascii_lowercase

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from plots.data import At, Data
from plots.style import BLUE, INK, PURPLE, SOFT, VERMILLION, panel_grid
from results.metrics.trace_metrics import QUANTITIES
from results.reports.grid import panels
from results.store.traces import Clause

LIGHT_TO_BLUE = LinearSegmentedColormap.from_list("blues", ["#dcebf5", BLUE, "#00263d"])
_TESTED = (("accepted", PURPLE, "o"), ("rejected", VERMILLION, "."))
"""Label, colour and marker of tested draft tokens."""


def draw(data: Data) -> Figure:
    """Draw one panel per view and place; the panel of a cell without traces is empty, with a note."""
    views = data.figure.views
    places = [(title, at, number) for title, at in panels(data.spec, data.figure.panels, len(views))
              for number in range(len(views))]
    figure, axes = panel_grid(len(places), columns=2 if len(places) in (2, 4) else 3)
    for i, (ax, (title, at, number)) in enumerate(zip(axes, places, strict=True)):
        letter = f"({ascii_lowercase[i]})" if len(views) > 1 else ""
        ax.set_title(" ".join(part for part in (letter, title, views[number].title) if part))
        _panel(ax, data, at, number)
    return figure


def _panel(ax: Axes, data: Data, at: At, number: int) -> None:
    view, frame = data.figure.views[number], data.lines(at, place=number)
    tested, total = view.points == "tested", len(frame)
    for name, limits in ((view.x, view.x_range), (view.y, view.y_range)):
        if limits is not None and len(frame):
            frame = frame[frame[name].between(*limits)]
    if frame.empty:
        ax.text(0.5, 0.5, "no traced positions", ha="center", va="center", transform=ax.transAxes, color=SOFT)
    elif view.y is None:
        values(ax, frame[view.x], label=QUANTITIES[view.x].label, mark=view.mark, total=total, span=view.x_range,
               log=view.log)
        ax.text(1.0, 1.02, f"n = {total:,}", ha="right", va="bottom", transform=ax.transAxes, color=SOFT)
    elif tested:
        rejected = frame["clause"] == Clause.REJECTED
        for (label, colour, marker), rows in zip(_TESTED, (frame[~rejected], frame[rejected]), strict=True):
            ax.plot(rows[view.x], rows[view.y], marker, color=colour, markersize=3.5, alpha=0.7,
                    label=f"{label} ({len(rows):,})")
        ax.legend(loc="upper left", title="tested draft tokens")
        ax.set_xlabel(QUANTITIES[view.x].label)
        ax.set_ylabel(QUANTITIES[view.y].label)
    else:
        chosen = frame["by_threshold"] if view.points == "by_threshold" else None
        plane(ax, frame[view.x], frame[view.y], labels=(QUANTITIES[view.x].label, QUANTITIES[view.y].label),
              chosen=chosen)
    if view.x_range is not None:
        ax.set_xlim(*view.x_range)


def values(ax: Axes, data: ArrayLike, *, label: str, bins: int = 60, mark: float | None = None,
           total: int | None = None, span: tuple[float, float] | None = None, log: bool = False) -> None:
    """Draw the distribution of traced values, such as z2/z1, as shares per bin.

    `mark`: threshold to mark on the axis. `total`: number of values including those left out of the figure. `span`:
    range of the bins, by default that of the values. `log`: a logarithmic scale of shares."""
    numbers = np.asarray(data, float)
    share = 100 / max(total or len(numbers), 1)
    ax.hist(numbers, bins=bins, range=span, weights=np.full(len(numbers), share), color=BLUE, edgecolor="white", lw=0.3,
            log=log)
    ax.set_xlabel(label)
    ax.set_ylabel("share (%), log" if log else "share (%)")
    if mark is not None:
        ax.axvline(mark, color=VERMILLION, lw=1.2, ls=(0, (4, 1.5)))


def plane(
    ax: Axes, x: ArrayLike, y: ArrayLike, *, labels: tuple[str, str], bins: int = 60,
    chosen: ArrayLike | None = None,
) -> None:
    """Pairs of traced values as a two-dimensional histogram on a logarithmic scale of counts; the pairs of `chosen`,
    such as the tokens accepted by relaxation, are drawn over it as points."""
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    *_, image = ax.hist2d(xs, ys, bins=bins, cmap=LIGHT_TO_BLUE, norm=LogNorm(), cmin=1)
    ax.figure.colorbar(image, ax=ax, label="tokens in a bin", pad=0.02)
    if chosen is not None:
        picked = np.asarray(chosen, bool)
        ax.plot(xs[picked], ys[picked], ".", color=VERMILLION, markersize=3.5, alpha=0.8, markeredgewidth=0,
                label=f"kept by relaxation ({picked.sum():,})")
        ax.legend(loc="best")
    ax.grid(False)
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1], color=INK)
