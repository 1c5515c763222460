"""Where a rule gains: answer speedup over the best lossless setting, over what drafting and verifying cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from plots.data import summary
from plots.style import BLUE, INK, SOFT, VERMILLION, panel_grid
from results.metrics.cost import VERIFIED, answer_cost
from results.metrics.summary import Summary
from results.reports.figures import Machine, When
from results.reports.grid import Grid, panels
from results.reports.spec import FigureSpec

DRAFT, VERIFY = np.geomspace(0.01, 1, 60), np.linspace(1, 3, 61)
"""A forward of the drafter's model over one token, and one of the target over VERIFIED tokens, each ÷ one of the target
over one token."""
LEVELS = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3)


def draw(when: When, spec: FigureSpec, grid: Grid) -> Figure:
    """A panel for each entry of `series` that is not lossless, at each entry of `panels`: contours of the answer
    speedup of its rule ÷ that of the best of the lossless entries and of plain decoding at the same costs; machines are
    marked."""
    ruled = [entry.label for entry in spec.axes[when.series] if entry.label not in when.lossless]
    rules = list(dict.fromkeys(ruled))
    places = [(title, at, rule) for title, at in panels(spec, when.panels, len(rules)) for rule in rules]
    figure, axes = panel_grid(len(places))
    for ax, (title, at, rule) in zip(axes, places, strict=True):
        ax.set_title(", ".join(filter(None, (title, rule))))
        ax.set(xscale="log", xlabel="draft forward ÷ target forward", ylabel=f"verifying {VERIFIED} tokens ÷ 1")
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.grid(False)
        own = costs(summary(spec, grid, {**at, when.series: rule}), lossless=False)
        lossless = [costs(summary(spec, grid, {**at, when.series: label}), lossless=True) for label in when.lossless]
        known = [cost for cost in lossless if cost is not None]
        if own is None or not known:
            continue
        ratio = gain(own, known)
        ax.contourf(DRAFT, VERIFY, ratio, levels=[0, 1, 99], colors=[VERMILLION, BLUE], alpha=0.16)
        ax.set_ylim(VERIFY[0], VERIFY[-1])
        lines = ax.contour(DRAFT, VERIFY, ratio, levels=LEVELS, colors=INK,
                           linewidths=[1.8 if level == 1 else 0.7 for level in LEVELS])
        ax.clabel(lines, fmt=lambda level: f"{level:g}×", fontsize=8)
        for (x, y), numbers in places_of(when.machines).items():
            ax.plot(x, y, "o", color=INK, markersize=4.5, clip_on=False, zorder=3)
            ax.annotate(numbers, (x, y), xytext=(0, 5), textcoords="offset points", ha="center", fontsize=9,
                        fontweight="bold", annotation_clip=False)
    names = [f"{number}: {mark.title}" for number, mark in enumerate(when.machines, start=1)]
    figure.suptitle("   ".join(names), x=0.01, ha="left", fontsize=8.5, color=SOFT, wrap=True)
    return figure


def gain(own: NDArray[np.float64], lossless: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """How much sooner an answer is there than by the cheapest lossless setting. Costs and result: [VERIFY, DRAFT];
    costs are seconds ÷ those of plain decoding, which is lossless too and costs 1."""
    return np.minimum(np.minimum.reduce(lossless), 1) / own


def places_of(machines: Sequence[Machine]) -> dict[tuple[float, float], str]:
    """Place in the plane, at its edge where a machine lies outside -> the numbers of the machines there, from 1."""
    places: dict[tuple[float, float], list[str]] = {}
    for number, machine in enumerate(machines, start=1):
        x, y = (float(np.clip(at, grid[0], grid[-1]))
                for at, grid in ((machine.draft, DRAFT), (machine.verify, VERIFY)))
        near = next((place for place in places if abs(np.log(x / place[0])) < 0.1 and abs(y - place[1]) < 0.05), (x, y))
        places.setdefault(near, []).append(str(number))
    return {place: ", ".join(numbers) for place, numbers in places.items()}


def costs(cell: Summary | None, lossless: bool) -> NDArray[np.float64] | None:
    """Seconds of an answer ÷ those of plain decoding, [VERIFY, DRAFT]; None where the cell was not measured. A lossless
    method's answers are as long as those of plain decoding, up to chance, which is taken off."""
    if (cell is None or cell.pass_ratio is None or cell.length_ratio is None or cell.nodes_per_cycle is None
            or cell.forwards_per_cycle is None):
        return None
    passes = 1 / cell.pass_ratio / (cell.length_ratio if lossless else 1)
    return answer_cost(passes, cell.nodes_per_cycle, cell.forwards_per_cycle, DRAFT[None], VERIFY[:, None])
