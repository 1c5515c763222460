"""ARC-Decode, Figure 2: how alike an answer goes on after a rejected token, by models of
meaning."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from plots.data import At, Data
from plots.dropmatch_fig3 import TITLES, say_empty
from plots.style import INK, legend_of, look, panel_grid
from results.reports.grid import panels

BINS = 40


def draw(data: Data) -> Figure:
    """The distribution of each measure over continuations, for each entry of `panels`; a hollow
    marker on the upper edge stands at the mean."""
    measures = data.figure.meanings
    places = [
        (title, at, measure)
        for title, at in panels(data.spec, data.figure.panels, len(measures))
        for measure in measures
    ]
    figure, axes = panel_grid(len(places), columns=3)
    for ax, (title, at, measure) in zip(axes, places, strict=True):
        name = "probability of contradiction" if measure == "entailment" else TITLES[measure]
        ax.set_title(title)
        ax.set_xlabel(f"{name} with the answer's own continuation")
        ax.set_ylabel("share of continuations (%)")
        _distributions(ax, data, at, measure)
    handles, _ = legend_of(axes)
    if handles:
        mean = Line2D(
            [],
            [],
            color=INK,
            marker="o",
            markerfacecolor="white",
            linestyle="none",
            label="hollow marker: mean",
        )
        figure.legend(handles=[*handles, mean], loc="outside upper left", ncols=3)
    return figure


def _distributions(ax: Axes, data: Data, at: At, measure: str) -> None:
    lines = data.lines(at, value_name=measure)
    if lines.empty:
        say_empty(ax, measure)
        return
    low = min(0.0, float(lines["value"].min()))
    for i, (name, of) in enumerate(lines.groupby("series", sort=False)["value"]):
        shape = look(i)
        shares, edges = np.histogram(of, bins=BINS, range=(low, 1.0))
        ax.stairs(
            100 * shares / len(of),
            edges,
            color=shape.colour,
            linestyle=shape.dash,
            linewidth=1.6,
            label=f"{name} (n = {len(of):,})",
        )
        ax.plot(
            [of.mean()],
            [1],
            shape.marker,
            color=shape.colour,
            transform=ax.get_xaxis_transform(),
            clip_on=False,
            markersize=7,
            markerfacecolor="white",
        )
