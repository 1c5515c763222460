"""The figure of the page of trained heads: losses and agreement over training tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from plots.render import save
from plots.style import look, panel_grid, style

Rows = Sequence[Mapping[str, Any]]
"""Logged steps: each has `tokens` and `loss`; and `agreement`, one share a draft step."""


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


def _png(figure: Figure, path: Path) -> Path:
    """Save as `path`, a PNG, alone."""
    for file in save(figure, path.with_suffix("")):
        if file != path:
            file.unlink()
    return path
