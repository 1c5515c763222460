"""A calibration of ARC-Decode: how often the bound holds, and whether it is vacuous."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from plots.style import look, note, panel_grid

LN2 = float(np.log(2.0))


def calibration(divergences: Sequence[float], bounds: Sequence[float], tau: float, theta: float) -> Figure:
    """Left: each position's divergence against its bound U, both in nats; a point above the diagonal breaks its bound.
    Right: the share of positions whose U is below a value, with tau, what theta lets through, and ln 2."""
    js, bound = np.asarray(divergences, float), np.asarray(bounds, float)
    figure, (left, right) = panel_grid(2, inches=(3.4, 3.0))
    low = max(min(js[js > 0].min(initial=1.0), bound[bound > 0].min(initial=1.0)), 1e-8)
    high = max(js.max(), bound.max(), tau, LN2) * 1.5
    one, other = look(0), look(1)
    left.scatter(np.maximum(bound, low), np.maximum(js, low), s=4, alpha=0.4, color=one.colour, linewidths=0)
    left.plot([low, high], [low, high], color="black", lw=0.8)
    left.set(xscale="log", yscale="log", xlabel="bound U (nats)", ylabel="next-step divergence (nats)")
    right.plot(np.sort(bound), np.arange(1, len(bound) + 1) / len(bound), color=one.colour, lw=1.2)
    for value, name, dash in ((tau, "τ", "-"), (tau * (1 - theta), f"τ (1 − {theta:g})", "--"), (LN2, "ln 2", ":")):
        right.axvline(value, color="black" if name == "ln 2" else other.colour, ls=dash, lw=1.0, label=name)
    right.set(xscale="log", xlim=(low, high), xlabel="bound U (nats)", ylabel="share of positions")
    right.legend()
    held = float(np.mean(js <= bound))
    note(figure, f"{len(js)} positions; the bound holds at {held:.1%} of them."
         + (" τ ≥ ln 2: the certified bound is vacuous." if tau >= LN2 else ""))
    return figure
