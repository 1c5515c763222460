"""The roofline of a target: tokens that pass through it each second, against the tokens of one forward."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from plots.style import SOFT, look, note, panel_grid
from results.metrics.roofline import Limits


def draw(measured: Mapping[str, Mapping[int, float]], limits: Mapping[str, Limits], caption: str) -> Figure:
    """`measured`: "nodes of a tree" and "rows of a batch" -> tokens of one forward -> tokens/s. A line shows what the
    copy bandwidth and the measured matrix products allow each of them, its entry in `limits`."""
    figure, [ax] = panel_grid(1, inches=(5.2, 3.6))
    most = max(max(points) for points in measured.values())
    grid = np.geomspace(1, 2 * most, 200)
    for index, (name, points) in enumerate(measured.items()):
        one = look(index)
        ax.plot(list(points), list(points.values()), color=one.colour, marker=one.marker, ls="-", label=name)
        allowed = limits[name].tokens_per_s(grid, grid if name == "rows of a batch" else np.ones_like(grid))
        ax.plot(grid, allowed, color=one.colour, lw=1, ls=one.dash if index else (0, (1, 2)), label=f"limit, {name}")
    compute = max(each.compute for each in limits.values())
    ax.axhline(compute, color=SOFT, lw=0.8)
    ax.annotate("matrix products", (1, compute), xytext=(0, 3), textcoords="offset points", color=SOFT,
                fontsize=8)
    ticks = [1 << power for power in range(most.bit_length() + 1)]
    ax.set(xscale="log", yscale="log", xlabel="tokens of one forward: rows × nodes",
           ylabel="tokens/s through the target")
    ax.minorticks_off()
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value < 1e4 else f"{value / 1e3:g}k"))
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    figure.legend(loc="outside upper left", ncols=2)
    note(figure, caption)
    return figure
