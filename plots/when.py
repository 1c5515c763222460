"""Where a rule gains: answer speedup over the best lossless setting, over what drafting and
verifying cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from plots.data import At, Data
from plots.rules import family
from plots.style import BLUE, INK, SOFT, VERMILLION, panel_grid
from results.metrics.cost import VERIFIED, Profile, answer_cost, ratios
from results.reports.grid import panels

DRAFT, VERIFY = np.geomspace(0.01, 1, 60), np.linspace(1, 3, 61)
"""A forward of the drafter's model over one token, and one of the target over VERIFIED tokens, each
÷ one of the target over one token."""
PROFILES, DRAFTER = Path(__file__).parents[1] / "conf" / "cost", "eagle3"
"""The shipped machine profiles, and the drafter whose forwards the horizontal axis counts."""
BARS = ""
"""No intervals are drawn."""
LEVELS = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3)


def draw(data: Data) -> Figure:
    """A panel for each entry of `series` that is not lossless, at each entry of `panels`: contours
    of the answer speedup of its rule ÷ that of the best of the lossless entries and of plain
    decoding at the same costs; machines are marked."""
    axis, marked = data.figure.series, machines()
    is_lossless = {entry.label: family(entry.rule) == "lossless" for entry in data.spec.axes[axis]}
    rules = [label for label, lossless in is_lossless.items() if not lossless]
    places = [
        (title, at, rule)
        for title, at in panels(data.spec, data.figure.panels, len(rules))
        for rule in rules
    ]
    figure, axes = panel_grid(len(places))
    for ax, (title, at, rule) in zip(axes, places, strict=True):
        ax.set_title(", ".join(filter(None, (title, rule))))
        ax.set(
            xscale="log",
            xlabel="draft forward ÷ target forward",
            ylabel=f"verifying {VERIFIED} tokens ÷ 1",
        )
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.grid(False)
        own = costs(data, {**at, axis: rule}, lossless=False)
        lossless = [
            costs(data, {**at, axis: label}, lossless=True)
            for label, is_one in is_lossless.items()
            if is_one
        ]
        known = [cost for cost in lossless if cost is not None]
        if own is None or not known:
            continue
        ratio = gain(own, known)
        ax.contourf(DRAFT, VERIFY, ratio, levels=[0, 1, 99], colors=[VERMILLION, BLUE], alpha=0.16)
        ax.set_ylim(VERIFY[0] - 0.08, VERIFY[-1])  # room for machines on the lower edge
        lines = ax.contour(
            DRAFT,
            VERIFY,
            ratio,
            levels=LEVELS,
            colors=INK,
            linewidths=[1.8 if level == 1 else 0.7 for level in LEVELS],
        )
        ax.clabel(lines, fmt=lambda level: f"{level:g}×", fontsize=8)
        for (x, y), numbers in places_of(list(marked.values())).items():
            ax.plot(x, y, "o", color=INK, markersize=4.5, clip_on=False, zorder=3)
            ax.annotate(
                numbers,
                (x, y),
                xytext=(0, 5),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                fontweight="bold",
                annotation_clip=False,
            )
    names = [f"{number}: {title}" for number, title in enumerate(marked, start=1)]
    figure.suptitle("   ".join(names), x=0.01, ha="left", fontsize=8.5, color=SOFT, wrap=True)
    return figure


def machines() -> dict[str, tuple[float, float]]:
    """Title of each shipped cost profile that prices `DRAFTER` -> its place in the plane."""
    profiles = [
        Profile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        for path in sorted(PROFILES.glob("*.yaml"))
    ]
    return {
        profile.title: place
        for profile in profiles
        if (place := ratios(profile, DRAFTER)) is not None
    }


def gain(own: NDArray[np.float64], lossless: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """How much sooner an answer is there than by the cheapest lossless setting. Costs and result:
    [VERIFY, DRAFT]; costs are seconds ÷ those of plain decoding, which is lossless too and costs
    1."""
    return np.minimum(np.minimum.reduce(lossless), 1) / own


def places_of(machines: Sequence[tuple[float, float]]) -> dict[tuple[float, float], str]:
    """Place in the plane, at its edge where a machine lies outside -> the numbers of the machines
    there, from 1."""
    places: dict[tuple[float, float], list[str]] = {}
    for number, machine in enumerate(machines, start=1):
        x, y = (
            float(np.clip(at, grid[0], grid[-1]))
            for at, grid in zip(machine, (DRAFT, VERIFY), strict=True)
        )
        near = next(
            (
                place
                for place in places
                if abs(np.log(x / place[0])) < 0.2 and abs(y - place[1]) < 0.05
            ),
            (x, y),
        )
        places.setdefault(near, []).append(str(number))
    return {place: ", ".join(numbers) for place, numbers in places.items()}


def costs(data: Data, cell: At, lossless: bool) -> NDArray[np.float64] | None:
    """Seconds of an answer ÷ those of plain decoding, [VERIFY, DRAFT]; None where the cell was not
    measured. A lossless method's answers are as long as those of plain decoding, up to chance,
    which is taken off."""
    saved, length, nodes, forwards = (data.value(cell, name) for name in data.figure.values)
    if saved is None or length is None or nodes is None or forwards is None:
        return None
    return answer_cost(
        1 / saved / (length if lossless else 1), nodes, forwards, DRAFT[None], VERIFY[:, None]
    )
