"""Expected accept length against distortion of every screened setting (`bench.screen`)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, StrMethodFormatter

from plots.style import BLUE, INK, ORANGE, SOFT, panel_grid, style

LIMIT = "tilted"
TICKS = (0, 0.02, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2, 3)
NAMED = 12
"""Settings whose names stand in the picture, at most: those of the Pareto set, the largest accept
length first."""


def draw(frame: pd.DataFrame) -> Figure:
    """The settings with a distortion, those of the Pareto set filled and named, and the limit as a
    line; the horizontal axis is the square root of D. `frame`: columns as in screen.csv."""
    with style():
        figure, [ax] = panel_grid(1, columns=1, inches=(7.2, 4.4))
        known = frame[frame["distortion"].notna() & frame["tau"].notna()]
        limit = known[(known["rule"] == LIMIT) | (known["rule"] == "lossless")]
        limit = limit.sort_values("distortion")
        ax.plot(
            limit["distortion"],
            limit["tau"],
            color=BLUE,
            label="kept the most, cycle by cycle (tilted)",
        )
        others = known[known["rule"] != LIMIT]
        best = others[others["pareto"]]
        rest = others[~others["pareto"]]
        _points(ax, rest, SOFT, "none", "settings")
        _points(ax, best, INK, ORANGE, "Pareto set")
        _names(ax, best)
        ax.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
        widest = float(known["distortion"].max() or 1.0) * 1.1
        ax.set_xlim(-1e-9, max(widest, 0.01))
        ax.xaxis.set_major_locator(FixedLocator([tick for tick in TICKS if tick <= widest]))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.set_xlabel("distortion D (nats a token, square-root scale)")
        ax.set_ylabel("expected accept length τ")
        ax.set_title("Every rule on the drafts of one lossless decode")
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def _points(ax: Axes, rows: pd.DataFrame, edge: str, fill: str, label: str) -> None:
    ax.errorbar(
        rows["distortion"],
        rows["tau"],
        yerr=[rows["tau"] - rows["tau_low"], rows["tau_high"] - rows["tau"]],
        ls="none",
        marker="o",
        markersize=5,
        markerfacecolor=fill,
        markeredgecolor=edge,
        color=edge,
        elinewidth=0.5,
        clip_on=False,
        label=label,
    )


def _names(ax: Axes, best: pd.DataFrame) -> None:
    """The names of the Pareto set in a column at the right, from the top."""
    shown = best.sort_values("tau", ascending=False).head(NAMED)
    for place, row in enumerate(shown.itertuples()):
        ax.annotate(
            f"{row.rule} {row.setting}".rstrip(),
            (float(str(row.distortion)), float(str(row.tau))),
            xytext=(1.03, 1 - place * 0.075),
            textcoords="axes fraction",
            fontsize=8.5,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": ORANGE, "lw": 0.5, "relpos": (0, 0.5)},
        )
