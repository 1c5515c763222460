"""Distributions of traced values in one or two dimensions (MARS, Figures 1 and 5)."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from numpy.typing import ArrayLike

from plots.style import BLUE, INK, VERMILLION

LIGHT_TO_BLUE = LinearSegmentedColormap.from_list("blues", ["#dcebf5", BLUE, "#00263d"])


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
