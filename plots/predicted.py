"""Two estimates of one speed against each other, cell by cell: what a cost profile predicts and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from plots.style import INK, SOFT, look, panel_grid

BAND = 0.1
"""The band around equality that is shaded, as a share."""


def draw(cells: Mapping[str, Sequence[tuple[float, float]]], names: tuple[str, str]) -> Figure:
    """A marker for each cell. `cells`: group -> (predicted, measured) of its cells; `names`: of both axes."""
    figure, [ax] = panel_grid(1)
    values = np.array([point for points in cells.values() for point in points])
    low, high = values.min() * 0.9, values.max() * 1.1
    ends = np.array([low, high])
    ax.fill_between(ends, ends * (1 - BAND), ends * (1 + BAND), color=SOFT, alpha=0.15, lw=0, label=f"± {BAND:.0%}")
    ax.plot(ends, ends, color=INK, lw=0.8)
    for index, (group, points) in enumerate(cells.items()):
        shape = look(index)
        ax.plot(*zip(*points, strict=True), ls="none", marker=shape.marker, color=shape.colour, markersize=4.5,
                alpha=0.8, label=group)
    ax.set(xlabel=names[0], ylabel=names[1], xlim=ends, ylim=ends, aspect="equal")
    figure.legend(loc="outside upper left", ncols=1)
    return figure
