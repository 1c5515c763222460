"""Figures of model cards: losses and agreement over training tokens, and the distribution of a target's margins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from plots.histogram import values
from plots.render import save
from plots.style import look, panel_grid, style

Rows = Sequence[Mapping[str, Any]]
"""Logged steps: each has `tokens` and `loss`; a model's also `layers`, a head's `agreement`, one share a draft step."""


def pair_losses(losses: Mapping[str, Rows], path: Path) -> Path:
    """Draw each model's loss against tokens seen; a dotted line marks where it grew in depth. Returns the PNG."""
    with style():
        figure, (ax,) = panel_grid(1, inches=(6.2, 3.0))
        for i, (name, rows) in enumerate(losses.items()):
            ink = look(i)
            ax.plot([row["tokens"] / 1e6 for row in rows], [row["loss"] for row in rows], color=ink.colour,
                    linestyle=ink.dash, lw=1.1, label=name)
            for before, row in pairwise(rows):
                if row["layers"] > before["layers"]:
                    ax.axvline(row["tokens"] / 1e6, color=ink.colour, lw=0.8, ls=":")
        ax.set_yscale("log")
        ax.set_xlabel("training tokens (millions)")
        ax.set_ylabel("loss (nats/token)")
        ax.legend()
        return _png(figure, path)


def head_curves(losses: Mapping[str, Rows], path: Path) -> Path:
    """Draw each head's loss, and the agreement of its first draft token, against tokens seen. Returns the PNG."""
    with style():
        figure, (loss, agreement) = panel_grid(2, inches=(3.6, 2.8))
        for i, (name, rows) in enumerate(losses.items()):
            ink, tokens = look(i), [row["tokens"] / 1e6 for row in rows]
            for ax, heights in ((loss, [row["loss"] for row in rows]),
                                (agreement, [100 * row["agreement"][0] for row in rows])):
                ax.plot(tokens, heights, color=ink.colour, linestyle=ink.dash, lw=1.2, label=name)
                ax.set_xlabel("training tokens (millions)")
        loss.set_yscale("log")
        loss.set_ylabel("loss (each head's own)")
        agreement.set_ylabel("first draft token right (%)")
        agreement.legend()
        return _png(figure, path)


def margins(z1: Sequence[float], ratio: Sequence[float], p_ratio: Sequence[float], theta: float, path: Path) -> Path:
    """Draw the distributions of z₁, z₂/z₁ and p₂/p₁ (as MARS, Figure 5), `theta` marked. Returns the PNG."""
    with style():
        figure, (first, second, third) = panel_grid(3, inches=(3.2, 2.8))
        values(first, z1, label="top-1 logit z₁", mark=0.0)
        values(second, ratio, label="z₂ / z₁", mark=theta)
        values(third, p_ratio, label="p₂ / p₁", mark=theta)
        return _png(figure, path)


def _png(figure: Figure, path: Path) -> Path:
    """Save as `path`, a PNG, alone."""
    for file in save(figure, path.with_suffix("")):
        if file != path:
            file.unlink()
    return path
