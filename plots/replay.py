"""Acceptance against a threshold, replayed from a trace."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from plots.render import save
from plots.style import BLUE, INK, VERMILLION, panel_grid, style
from results.store.traces import Threshold


def render_replay(rows: pd.DataFrame, threshold: Threshold, title: str, stem: Path) -> list[Path]:
    """Write <stem>.png, .pdf and .svg and return their paths. `rows` as from results.metrics.replay.replay."""
    with style(salt=stem.name):
        return save(draw(rows, threshold, title), stem)


def draw(rows: pd.DataFrame, threshold: Threshold, title: str) -> Figure:
    """The share of tested tokens that would be kept, with its interval, and on a second scale the accepted length. A
    dotted line marks the threshold of the traced run."""
    figure, [left] = panel_grid(1)
    right = left.twinx()
    right.grid(False)
    right.spines["right"].set_visible(True)
    x = rows["threshold"]
    left.fill_between(x, 100 * rows["acceptance_low"], 100 * rows["acceptance_high"], color=BLUE, alpha=0.1, lw=0)
    left.plot(x, 100 * rows["acceptance"], color=BLUE, marker="o", markersize=3)
    right.plot(x, rows["accept_len"], color=VERMILLION, ls=(0, (4, 1.5)), marker="s", markersize=3,
               markerfacecolor="white")
    left.axvline(threshold.value, color=INK, lw=1, ls=(0, (1, 2)))
    left.set_title(title)
    left.set_xlabel(f"{threshold.name} (dotted: traced)")
    left.set_ylabel("tested tokens kept (%)", color=BLUE)
    right.set_ylabel("accepted draft tokens per cycle", color=VERMILLION)
    return figure
