"""τ against distortion: lossless decoding over temperatures, the most that a rule can keep of one
draft cycle by cycle, and each rule by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, StrMethodFormatter

from plots.data import At, Data, Measured
from plots.labels import named
from plots.rules import looks_of
from plots.style import BLUE, GREY, SOFT, VERMILLION, Dash, legend_of, panel_grid
from results.metrics.catalog import metric
from results.metrics.distortion import efficiency
from results.metrics.intervals import NORMAL_95
from results.reports.grid import panels

Point = tuple[Measured, Measured]
"""D and τ of a rule."""
_TICKS = (0, 0.02, 0.1, 0.2, 0.4, 0.7, 1, 1.5, 2, 3)
TILTED = "the limit: rule=tilted"
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
        ax.set_title(title)
        ax.set_xlabel("distortion D (nats per token, square-root scale)")
        ax.set_ylabel(metric("tau").axis)
        ax.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
        _panel(ax, data, at)
    for ax, (_, at) in zip(axes, places, strict=True):
        _altered_targets(ax, data, at)
    figure.legend(*legend_of(axes), loc="outside upper left", ncols=2)
    return figure


def _points(data: Data, at: At) -> dict[str, Point]:
    """Label of a rule -> its D and τ, where both were measured."""
    points = {}
    for entry in data.spec.axes[data.figure.series]:
        cell = {**at, data.figure.series: entry.label}
        distortion, tau = data.measured(cell, "distortion"), data.measured(cell, "tau")
        if distortion is not None and tau is not None:
            points[entry.label] = distortion, tau
    return points


def _curves(data: Data, points: Mapping[str, Point]) -> tuple[list[str], list[str]]:
    """The labels of lossless decoding, that at the temperature asked for first, and those of the
    limit: block verification towards tilted's law where it was measured, else tilted."""
    entries = data.spec.axes[data.figure.series]
    lossless = [entry.label for entry in entries if entry.label.startswith("lossless, T")]
    tilted = [entry.label for entry in entries if entry.rule == "tilted"]
    block = [
        entry.label
        for entry in entries
        if "rule.towards=tilted" in entry.overrides and entry.label in points
    ]
    return lossless, block or tilted


def derived(data: Data) -> pd.DataFrame:
    """The frame with how near each rule comes to the limit of its panel, behind its other lines."""
    parts = []
    for coords, lines in data.frame.groupby(list(data.spec.axes), sort=False):
        parts.append(lines)
        if lines["state"].iloc[0] != "measured":
            continue
        at = dict(zip(data.spec.axes, map(str, coords), strict=True))
        points, label = _points(data, at), at[data.figure.series]
        (first, *_), limit = _curves(data, points)
        share = None
        if {label, first} <= points.keys():
            curve = [_numbers(points[other]) for other in limit if other in points]
            share = efficiency(_numbers(points[label]), _numbers(points[first]), curve)
        value, low, high = share or (None, np.nan, np.nan)
        parts.append(
            lines.iloc[-1:].assign(
                value_name="efficiency_at_d", value=value, ci_low=low, ci_high=high
            )
        )
    return pd.concat(parts, ignore_index=True)


def _numbers(point: Point) -> tuple[float, float, float]:
    """D, τ and the standard error of τ."""
    distortion, tau = point
    return distortion.value, tau.value, (tau.high - tau.low) / (2 * NORMAL_95)


def _panel(ax: Axes, data: Data, at: At) -> None:
    points = _points(data, at)
    lossless, limit = _curves(data, points)
    tilted = [label for label in points if label.startswith("tilted")]
    is_block = any(label.startswith("block towards") for label in limit)
    if is_block:
        _draw_curve(ax, BLOCK, limit, points, BLUE, "-", "o")
    else:
        _draw_curve(ax, TILTED, [*lossless[:1], *limit], points, BLUE, "-", "o")
    name, dash = "lossless, T from 1 to 0", (0, (5, 1.6))
    _draw_curve(ax, name, lossless, points, VERMILLION, dash, "s")
    if is_block:
        _draw_curve(ax, "tilted, token by token", tilted, points, GREY, ":", ".")
    on_curves = {*lossless, *limit, *tilted}
    rules = {label: point for label, point in points.items() if label not in on_curves}
    _draw_rules(ax, rules, data, at)
    widest = max((distortion.high for distortion, _ in points.values()), default=1.0)
    ax.set_xlim(0, widest * 1.05)
    ax.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= widest * 1.05]))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _draw_curve(
    ax: Axes,
    name: str,
    labels: Iterable[str],
    points: Mapping[str, Point],
    colour: str,
    dash: Dash,
    marker: str,
) -> None:
    """Draw a line through those of these labels that were measured, the smallest D first."""
    known = [points[label] for label in labels if label in points]
    curve = sorted(known, key=lambda point: point[0].value)
    at_d = [distortion.value for distortion, _ in curve]
    taus = [tau for _, tau in curve]
    ax.plot(
        at_d,
        [tau.value for tau in taus],
        color=colour,
        ls=dash,
        marker=marker,
        markersize=3.5,
        lw=1.6,
        label=name,
        clip_on=False,
    )
    low, high = [tau.low for tau in taus], [tau.high for tau in taus]
    ax.fill_between(at_d, low, high, color=colour, alpha=0.12, lw=0)


def _draw_rules(ax: Axes, rules: Mapping[str, Point], data: Data, at: At) -> None:
    """Draw a marker for each rule, and the list of their names."""
    names = {entry.label: entry.rule for entry in data.spec.axes[data.figure.series]}
    shapes = looks_of({label: names[label] for label in rules})
    drawn = {}
    for label, (x, y) in sorted(rules.items(), key=lambda rule: -rule[1][1].value):
        share = data.measured({**at, data.figure.series: label}, "efficiency_at_d")
        drawn[_told(label, share)] = ax.errorbar(
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
    roots = {}  # of D: places on the axis
    for entry in data.spec.axes[data.figure.series]:
        distortion = data.measured({**at, data.figure.series: entry.label}, "distortion")
        if entry.altered and distortion is not None:
            roots[entry.altered] = np.sqrt(distortion.value)
    widest = np.sqrt(ax.get_xlim()[1])
    groups: list[list[str]] = []
    for name in sorted(roots, key=lambda name: roots[name]):
        if groups and roots[name] - roots[groups[-1][0]] < APART * widest:
            groups[-1].append(name)
        else:
            groups.append([name])
    for group in groups:
        for name in group:
            ax.axvline(roots[name] ** 2, 0.96, 1, color=GREY, lw=1, label=ALTERED)
        ax.annotate(
            ", ".join(group),
            (roots[group[-1]] ** 2, 1),
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
