"""Expected accept length against distortion of every screened setting (`bench.screen`)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, StrMethodFormatter

from plots import labels
from plots.style import BLUE, INK, ORANGE, SOFT, panel_grid, style

LIMIT = "tilted"
TICKS = (0, 0.02, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2, 3)
NAMED = 12
"""Settings whose names stand in the picture, at most: those of the Pareto set first, and the
largest accept length."""


def draw(frame: pd.DataFrame) -> Figure:
    """The settings with a distortion, those of the Pareto set filled, and the limit as a line; the
    horizontal axis is the square root of D. `frame`: columns as in screen.csv."""
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
        ax.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
        widest = float(known["distortion"].max() or 1.0) * 1.1
        ax.set_xlim(-1e-9, max(widest, 0.01))
        ax.xaxis.set_major_locator(FixedLocator([tick for tick in TICKS if tick <= widest]))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.set_xlabel("distortion D (nats per token, square-root scale)")
        ax.set_ylabel("expected accept length τ")
        ax.set_title("Every rule on the drafts of one lossless decode")
        figure.legend(loc="outside lower center", ncols=3)
        taken = [(ax, *place) for place in _places(known)]
        labels.write(figure, [(ax, name) for name in _names(best, rest)], taken)
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


def _names(best: pd.DataFrame, rest: pd.DataFrame) -> list[labels.Name]:
    """Those of the Pareto set, and of the others where there is room."""
    by_tau = [rows.sort_values("tau", ascending=False) for rows in (best, rest)]
    shown = pd.concat(by_tau).head(NAMED)
    texts = (shown["rule"] + " " + shown["setting"].fillna("").astype(str)).str.rstrip()
    return [
        labels.Name(text, place, INK) for text, place in zip(texts, _places(shown), strict=True)
    ]


def _places(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Distortion and accept length of each setting."""
    return [(float(d), float(tau)) for d, tau in zip(rows["distortion"], rows["tau"], strict=True)]
