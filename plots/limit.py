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
from plots.labels import named
from plots.rules import looks_of
from plots.style import BLUE, GREY, SOFT, VERMILLION, legend_of, panel_grid
from results.metrics.catalog import metric
from results.metrics.distortion import efficiency
from results.metrics.intervals import NORMAL_95
from results.reports.grid import panels

Place = tuple[Measured, Measured]
_TICKS = (0, 0.02, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2, 3)
TILTED = "the limit: rule=tilted (on drawn chains token by token)"
ALTERED = "at the top: the target itself, rounded or at another T"
APART = 0.025
"""Share of the axis below which marks have one name."""
BLOCK = "the limit on drawn chains: block verification towards tilted"


def draw(data: Data) -> Figure:
    """Draw one panel per entry of `panels`; the horizontal axis is the square root of D, so that 0
    and small ones are told apart. A list at the right names the points of each, the highest
    first."""
    places = panels(data.spec, data.figure.panels)
    figure, axes = panel_grid(len(places), columns=1, inches=(8.8, 3.9))
    for ax, (title, at) in zip(axes, places, strict=True):
        found = _found(data, at)
        ax.set_title(title)
        ax.set_xlabel("distortion D (nats per token, square-root scale)")
        ax.set_ylabel(metric("tau").axis)
        ax.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
        _panel(ax, _curves(data, found), found, data, at)
    for ax, (_, at) in zip(axes, places, strict=True):
        _altered_targets(ax, data, at)
    figure.legend(*legend_of(axes), loc="outside upper left", ncols=2)
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
        BLOCK if is_block else TILTED: (limit, BLUE, "-", "o"),
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
    shares = {
        label: data.measured({**at, data.figure.series: label}, "efficiency_at_d")
        for label in rules
    }
    entries = {entry.label: entry.rule for entry in data.spec.axes[data.figure.series]}
    shapes = looks_of({label: entries[label] for label in rules})
    drawn = {}
    for label, (x, y) in sorted(rules.items(), key=lambda rule: -rule[1][1].value):
        drawn[_told(label, shares[label])] = ax.errorbar(
            x.value,
            y.value,
            xerr=[[arm] for arm in x.below_above],
            yerr=[[arm] for arm in y.below_above],
            color=shapes[label].colour,
            marker=shapes[label].marker,
            markersize=6,
            markeredgecolor="white",
            markeredgewidth=0.5,
            elinewidth=0.7,
            clip_on=False,
            ls="none",
        )
    widest = max((x.high for x, _ in found.values()), default=1.0)
    ax.set_xlim(0, widest * 1.05)
    ax.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= widest * 1.05]))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.legend(
        list(drawn.values()),
        list(drawn),
        loc="upper left",
        bbox_to_anchor=(1.01, 1.02),
        title="rules, the highest τ first\n(in %: gain in τ ÷ the limit's)",
        alignment="left",
        labelspacing=0.35,
    )


def _altered_targets(ax: Axes, data: Data, at: At) -> None:
    """Mark at the top the D of the target itself, its weights rounded or at another temperature;
    one name for marks that are close."""
    found = {}
    for entry in data.spec.axes[data.figure.series]:
        place = data.measured({**at, data.figure.series: entry.label}, "distortion")
        if entry.altered and place is not None:
            found[entry.altered] = np.sqrt(place.value)
    widest = np.sqrt(ax.get_xlim()[1])
    groups: list[list[str]] = []
    for name in sorted(found, key=lambda name: found[name]):
        if groups and found[name] - found[groups[-1][0]] < APART * widest:
            groups[-1].append(name)
        else:
            groups.append([name])
    for group in groups:
        for name in group:
            ax.axvline(found[name] ** 2, 0.96, 1, color=GREY, lw=1, label=ALTERED)
        ax.annotate(
            ", ".join(group),
            (found[group[-1]] ** 2, 1),
            xycoords=ax.get_xaxis_transform(),
            xytext=(2, 0),
            textcoords="offset points",
            rotation=90,
            va="top",
            color=SOFT,
            fontsize=8,
        )


def _told(label: str, share: Measured | None) -> str:
    """A rule's name, with how near it comes to the limit where that is known and not below
    lossless decoding."""
    if share is None or share.value < 0:
        return named(label)
    interval = f" [{share.low:.0f}, {share.high:.0f}]" if share.low < share.high else ""
    return f"{named(label)}: {share.value:.0f}%{interval}"
