"""Distributions: accepted lengths over cycles, and traced values in one or two dimensions (MARS, Figures 1 and 5)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from plots.data import summary
from plots.rules import looks
from plots.style import BLUE, INK, VERMILLION, panel_grid
from results.reports.figures import Histogram
from results.reports.grid import Grid, panels
from results.reports.spec import FigureSpec

LIGHT_TO_BLUE = LinearSegmentedColormap.from_list("blues", ["#dcebf5", BLUE, "#00263d"])


def draw(histogram: Histogram, spec: FigureSpec, grid: Grid) -> Figure:
    """The share of cycles that accept 0, 1, 2, … draft tokens, a stepped line for each entry of `series` that drafts;
    its mean, the accepted length, stands as a hollow marker on the upper edge."""
    places = panels(spec, histogram.panels)
    figure, axes = panel_grid(len(places), columns=2)
    for ax, (title, at) in zip(axes, places, strict=True):
        ax.set_title(title)
        ax.set_xlabel("accepted draft tokens in a cycle")
        ax.set_ylabel("share of cycles (%)")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        _panel(ax, histogram, spec, grid, at)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=min(len(labels), 4) or 1)
    return figure


def _panel(ax: Axes, histogram: Histogram, spec: FigureSpec, grid: Grid, at: Mapping[str, str]) -> None:
    for label, shape in looks(entry for entry in spec.axes[histogram.series] if not entry.baseline).items():
        cell = summary(spec, grid, {**at, histogram.series: label})
        counts = np.array(cell.accept_histogram if cell else [], dtype=float)
        share = 100 * counts / counts.sum() if counts.sum() else counts
        ax.plot(range(len(share)), share, color=shape.colour, marker=shape.marker, linestyle=shape.dash,
                drawstyle="steps-mid", label=label)
        if counts.sum():
            mean = counts @ np.arange(len(counts)) / counts.sum()
            ax.plot([mean], [1], shape.marker, color=shape.colour, transform=ax.get_xaxis_transform(), clip_on=False,
                    markersize=7, markerfacecolor="white")


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
