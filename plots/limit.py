"""τ against distortion: lossless decoding over temperatures, the most that a rule can keep of one
draft cycle by cycle, and each rule by its name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, StrMethodFormatter

from plots.data import At, Data, Measured
from plots.style import BLUE, GREY, INK, ORANGE, SOFT, VERMILLION, panel_grid
from results.metrics.catalog import metric
from results.metrics.distortion import efficiency
from results.metrics.intervals import NORMAL_95
from results.reports.grid import panels

Place = tuple[Measured, Measured]
_TICKS = (0, 0.02, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2, 3)
_LINE_POINTS = 11.5
"""Least distance of two names in the column beside a panel."""


def draw(data: Data) -> Figure:
    """Draw one panel per entry of `panels`; the horizontal axis is the square root of D, so that 0
    and small ones are told apart. Names stand in a column at the right, joined to their points."""
    places = panels(data.spec, data.figure.panels)
    figure, axes = panel_grid(len(places), columns=1, inches=(6.4, 3.9))
    for ax, (title, at) in zip(axes, places, strict=True):
        found = _found(data, at)
        ax.set_title(title)
        ax.set_xlabel("distortion D (nats a token, square-root scale)")
        ax.set_ylabel(metric("tau").axis)
        ax.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
        _panel(ax, _curves(data, found), found, data, at)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=3)
    return figure


def _found(data: Data, at: At) -> dict[str, Place]:
    """Label of a rule -> its D and τ."""
    labels = dict.fromkeys(entry.label for entry in data.spec.axes[data.figure.series])
    cells = {label: {**at, data.figure.series: label} for label in labels}
    return {
        label: (x, y)
        for label, cell in cells.items()
        if (x := data.measured(cell, "distortion")) is not None
        and (y := data.measured(cell, "tau")) is not None
    }


def _curves(data: Data, found: Mapping[str, Place]) -> tuple[list[str], list[str]]:
    """The labels of lossless decoding, that at the temperature asked for first, and those of the
    limit: block verification towards tilted's law where it was measured, else tilted."""
    entries = data.spec.axes[data.figure.series]
    lossless = [entry.label for entry in entries if entry.label.startswith("lossless, T")]
    tilted = [entry.label for entry in entries if entry.rule == "tilted"]
    block = [
        entry.label
        for entry in entries
        if "rule.towards=tilted" in entry.overrides and entry.label in found
    ]
    return lossless, block or tilted


def derived(data: Data) -> pd.DataFrame:
    """The frame with how near each rule comes to the limit of its panel, behind its other lines."""
    lines = []
    for coords, own in data.frame.groupby(list(data.spec.axes), sort=False):
        at = dict(zip(data.spec.axes, map(str, coords), strict=True))
        found, label = _found(data, at), at[data.figure.series]
        (first, *_), limit = _curves(data, found)
        share = None
        if {label, first} <= found.keys():
            curve = [_point(found[other]) for other in limit if other in found]
            share = efficiency(_point(found[label]), _point(found[first]), curve)
        value, low, high = share or (None, np.nan, np.nan)
        line = own.iloc[-1:].assign(
            value_name="efficiency_at_d", value=value, ci_low=low, ci_high=high
        )
        lines += [own, *([line] if own["state"].iloc[0] == "measured" else [])]
    return pd.concat(lines, ignore_index=True)


def _point(place: Place) -> tuple[float, float, float]:
    """D, τ and the standard error of τ."""
    distortion, tau = place
    return distortion.value, tau.value, (tau.high - tau.low) / (2 * NORMAL_95)


def _panel(
    ax: Axes, lines: tuple[list[str], list[str]], found: Mapping[str, Place], data: Data, at: At
) -> None:
    lossless, limit = lines
    is_block = any(label.startswith("block towards") for label in limit)
    curves = {
        "block towards tilted" if is_block else "tilted": (limit, BLUE, "-", "o"),
        "lossless, T from 1 to 0": (lossless, VERMILLION, (0, (5, 1.6)), "s"),
    }
    tilted = [label for label in found if label.startswith("tilted")]
    if is_block:
        curves["tilted, token by token"] = (tilted, GREY, ":", ".")
    for name, (labels, colour, dash, marker) in curves.items():
        start = lossless[:1] if labels is limit and not is_block else []
        points = sorted(
            (found[label] for label in [*start, *labels] if label in found),
            key=lambda place: place[0].value,
        )
        at_d = [x.value for x, _ in points]
        ax.plot(
            at_d,
            [y.value for _, y in points],
            color=colour,
            ls=dash,
            marker=marker,
            markersize=3.5,
            lw=1.6,
            label=name,
            clip_on=False,
        )
        low, high = ([getattr(y, end) for _, y in points] for end in ("low", "high"))
        ax.fill_between(at_d, low, high, color=colour, alpha=0.12, lw=0)
    rules = {
        label: place for label, place in found.items() if label not in (*lossless, *limit, *tilted)
    }
    for label, (x, y) in rules.items():
        ax.errorbar(
            x.value,
            y.value,
            xerr=[[arm] for arm in x.below_above],
            yerr=[[arm] for arm in y.below_above],
            color=INK if not label.startswith("random") else SOFT,
            marker="D",
            markersize=4.5,
            elinewidth=0.6,
            clip_on=False,
            ls="none",
            label="rules" if label == next(iter(rules)) else None,
        )
    widest = max((x.high for x, _ in found.values()), default=1.0)
    ax.set_xlim(0, widest * 1.05)
    ax.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= widest * 1.05]))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    if lossless[0] in found:
        shares = {
            label: data.measured({**at, data.figure.series: label}, "efficiency_at_d")
            for label in rules
        }
        _names(ax, rules, shares)


def _names(ax: Axes, rules: Mapping[str, Place], shares: Mapping[str, Measured | None]) -> None:
    """The names of the rules in a column, with how near each comes to the limit, in the order of
    the points' heights, at least a line apart."""
    ordered = sorted(rules, key=lambda label: rules[label][1].value)
    low, high = ax.get_ylim()
    line = _LINE_POINTS / 72 / 2.9 * (high - low)  # an axes is about 2.9 inches high
    heights = [rules[label][1].value for label in ordered]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + line)
    over = max(0.0, heights[-1] - high) if heights else 0.0
    for i in range(
        len(heights) - 1, -1, -1
    ):  # what would stand above the panel moves down, and pushes others
        heights[i] = min(heights[i], high - (len(heights) - 1 - i) * line if over else heights[i])
    for label, height in zip(ordered, heights, strict=True):
        share = shares[label]
        text = label
        if share is not None and share.value >= 0:
            text = f"{label} ({share.value:.0f}%, {share.low:.0f} to {share.high:.0f}%)"
        ax.annotate(
            text,
            _values(rules[label]),
            xytext=(1.03, height),
            textcoords=("axes fraction", "data"),
            fontsize=8.5,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": ORANGE if not label.startswith("random") else SOFT,
                "lw": 0.5,
                "alpha": 0.7,
                "shrinkA": 1,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )


def _values(place: Place) -> tuple[float, float]:
    return place[0].value, place[1].value
