"""Figures of traced positions: the distribution of one quantity, or two plotted against each other
(MARS, Figures 1 and 5; FSD, Figure 3)."""

from __future__ import annotations

from string import ascii_lowercase

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from plots.data import At, Data
from plots.style import BLUE, INK, PURPLE, SOFT, VERMILLION, panel_grid
from results.metrics.trace_metrics import QUANTITIES
from results.reports.figures import View
from results.reports.grid import panels
from results.store.traces import Clause

LIGHT_TO_BLUE = LinearSegmentedColormap.from_list("blues", ["#dcebf5", BLUE, "#00263d"])
BINS = 60
_TESTED = (("accepted", PURPLE, "o"), ("rejected", VERMILLION, "."))
"""Label, colour and marker of tested draft tokens."""


def draw(data: Data) -> Figure:
    """Draw one panel per view and place; the panel of a cell without traces is empty, with a
    note."""
    views = data.figure.views
    places = [
        (title, at, number)
        for title, at in panels(data.spec, data.figure.panels, len(views))
        for number in range(len(views))
    ]
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
        ax.text(
            0.5,
            0.5,
            "no traced positions",
            ha="center",
            va="center",
            transform=ax.transAxes,
            color=SOFT,
        )
    elif view.y is None:
        _values(ax, frame[view.x], view, total)
    elif tested:
        rejected = frame["clause"] == Clause.REJECTED
        for (label, colour, marker), rows in zip(
            _TESTED, (frame[~rejected], frame[rejected]), strict=True
        ):
            ax.plot(
                rows[view.x],
                rows[view.y],
                marker,
                color=colour,
                markersize=3.5,
                alpha=0.7,
                label=f"{label} ({len(rows):,})",
            )
        ax.legend(loc="upper left", title="tested draft tokens")
        ax.set_xlabel(QUANTITIES[view.x].label)
        ax.set_ylabel(QUANTITIES[view.y].label)
    else:
        _plane(ax, frame, view)
    if view.x_range is not None:
        ax.set_xlim(*view.x_range)


def _values(ax: Axes, numbers: pd.Series[float], view: View, total: int) -> None:
    """The distribution of traced values, such as z2/z1, as shares per bin of all `total` values."""
    ax.hist(
        numbers,
        bins=BINS,
        range=view.x_range,
        weights=np.full(len(numbers), 100 / total),
        color=BLUE,
        edgecolor="white",
        lw=0.3,
        log=view.log,
    )
    ax.set_xlabel(QUANTITIES[view.x].label)
    ax.set_ylabel("share (%), log" if view.log else "share (%)")
    if view.mark is not None:
        ax.axvline(view.mark, color=VERMILLION, lw=1.2, ls=(0, (4, 1.5)))
    ax.text(
        1.0, 1.02, f"n = {total:,}", ha="right", va="bottom", transform=ax.transAxes, color=SOFT
    )


def _plane(ax: Axes, frame: pd.DataFrame, view: View) -> None:
    """Pairs of traced values as a two-dimensional histogram on a logarithmic scale of counts; the
    tokens accepted by relaxation are drawn over it as points."""
    assert view.y is not None
    *_, image = ax.hist2d(
        frame[view.x], frame[view.y], bins=BINS, cmap=LIGHT_TO_BLUE, norm=LogNorm(), cmin=1
    )
    ax.figure.colorbar(image, ax=ax, label="tokens in a bin", pad=0.02)
    if view.points == "by_threshold":
        picked = frame[frame["by_threshold"].astype(bool)]
        ax.plot(
            picked[view.x],
            picked[view.y],
            ".",
            color=VERMILLION,
            markersize=3.5,
            alpha=0.8,
            markeredgewidth=0,
            label=f"kept by relaxation ({len(picked):,})",
        )
        ax.legend(loc="best")
    ax.grid(False)
    ax.set_xlabel(QUANTITIES[view.x].label)
    ax.set_ylabel(QUANTITIES[view.y].label, color=INK)
