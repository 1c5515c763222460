"""Accuracy and speedup, or any two metrics, against a threshold: MARS, Figure 4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from plots.data import GAP, At, Data, Measured
from plots.rules import looks
from plots.style import BLUE, INK, PANEL_INCHES, SOFT, VERMILLION, Dash, Look, look, panel_grid
from results.metrics.catalog import metric
from results.reports.figures import BASELINE_OF
from results.reports.grid import panels

CUT = "bands go on beyond the frame"
_BASELINE_DASH = (0, (1, 2))
LETTER_INCHES, HANDLE_INCHES = 0.075, 0.6
"""Widths in a legend: of a letter of its 8.5 pt, and of a handle with the spaces around it."""


class _Scale(NamedTuple):
    """One of the two metrics. Dash and filling say again what the colour says, for prints and eyes
    without colour. Without a dash, lines have the colour and the dash of their rule."""

    metric: str
    colour: str
    dash: Dash | None
    filling: str

    def of(self, shape: Look) -> dict[str, Any]:
        """How a line of this look is drawn on the scale."""
        if self.dash is None:
            return {"color": shape.colour, "marker": shape.marker, "ls": shape.dash}
        return {
            "color": self.colour,
            "marker": shape.marker,
            "ls": self.dash,
            "markerfacecolor": self.filling,
            "markeredgecolor": self.colour,
        }


def draw(data: Data) -> Figure:
    """A panel for each entry of `panels` and each metric, one above the other, so that no band
    hides another's; the marker tells the entry of `lines`, and where these are rules the colour,
    too; else the colour and the dash tell the metric. A dotted line shows autoregressive
    decoding."""
    sweep, spec = data.figure, data.spec
    scales = [_Scale(sweep.left, BLUE, "-", BLUE)]
    if sweep.right:
        scales.append(_Scale(sweep.right, VERMILLION, (0, (4, 1.5)), "white"))
    shapes = looks(spec.axes[sweep.lines]) if sweep.lines else {"": look(0)}
    if sweep.lines and any(entry.rule for entry in spec.axes[sweep.lines]):
        scales = [_Scale(scale.metric, INK, None, "") for scale in scales]
    places = panels(spec, sweep.panels)
    across = min(len(places), 4 if len(scales) > 1 else 2)
    drawn = [
        (place, scale)
        for i in range(0, len(places), across)
        for scale in scales
        for place in places[i : i + across]
    ]
    measured = [panel for panel in drawn if _has_numbers(data, panel[1].metric, panel[0][1])]
    drawn = measured or drawn
    figure, axes = panel_grid(
        len(drawn), columns=across, inches=(3.3, 2.5) if across > 2 else PANEL_INCHES
    )
    for ax, ((title, at), scale) in zip(axes, drawn, strict=True):
        ax.set_title(title)
        ax.set_xlabel(sweep.x_label or sweep.x)
        places_on_x = [place for place, _ in _places(data)]
        if sweep.log:
            ax.set_xscale("log")
            ax.minorticks_off()
        ax.set_xticks(places_on_x, [f"{place:g}" for place in places_on_x])
        _draw_scale(ax, scale, data, at, shapes)
    handles = _legend(scales, shapes)
    figure.legend(
        handles=handles, loc="outside upper left", ncols=_columns(handles, figure.get_figwidth())
    )
    return figure


def _has_numbers(data: Data, name: str, at: At) -> bool:
    """Whether the metric has a number anywhere in a panel."""
    sweep, axes = data.figure, data.spec.axes
    lines = (
        [{**at, sweep.lines: entry.label} for entry in axes[sweep.lines]] if sweep.lines else [at]
    )
    return any(
        data.measured({**line, sweep.x: label}, name) is not None
        for line in lines
        for _, label in _places(data)
    )


def left_out(data: Data) -> str:
    """Which panels are not drawn; without any number all are."""
    sweep = data.figure
    every = [
        (title, at, name)
        for title, at in panels(data.spec, sweep.panels)
        for name in filter(None, (sweep.left, sweep.right))
    ]
    said = [
        ", ".join(filter(None, [title, metric(name).label]))
        for title, at, name in every
        if not _has_numbers(data, name, at)
    ]
    is_part = 0 < len(said) < len(every)
    return f"no panel, since not measured: {'; '.join(said)}" if is_part else ""


def _draw_scale(ax: Axes, scale: _Scale, data: Data, at: At, shapes: Mapping[str, Look]) -> None:
    sweep, baselines = data.figure, set[float]()
    lines: list[tuple[Look, dict[float, Measured]]] = []
    for line, shape in shapes.items():
        here = {**at, sweep.lines: line} if sweep.lines else at
        cells = {place: {**here, sweep.x: label} for place, label in _places(data)}
        points = {x: data.measured(cell, scale.metric) or GAP for x, cell in cells.items()}
        lines.append((shape, points))
        ax.plot(list(points), [y.value for y in points.values()], **scale.of(shape))
        levels = _baselines(data, cells.values(), scale.metric)
        if len(levels) > 1:  # it depends on x, such as the speed on the batch size
            through = [
                data.measured(cell, BASELINE_OF[scale.metric]) or GAP for cell in cells.values()
            ]
            ax.plot(
                list(cells),
                [level.value for level in through],
                color=scale.colour,
                lw=1,
                ls=_BASELINE_DASH,
                zorder=1.5,
            )
        else:
            baselines |= levels
    for level in sorted(baselines):
        ax.axhline(level, color=scale.colour, lw=1, ls=_BASELINE_DASH, zorder=1.5)
    _draw_bands(ax, scale, lines)
    ax.set_ylabel(metric(scale.metric).axis, color=scale.colour)
    ax.tick_params(axis="y", colors=scale.colour)


def _draw_bands(
    ax: Axes, scale: _Scale, lines: Sequence[tuple[Look, Mapping[float, Measured]]]
) -> None:
    """Draw the intervals of the lines, whole. But few prompts may have one that would leave the
    points a line at the bottom: then it is cut, which the panel says."""
    low, high = ax.get_ylim()
    for shape, points in lines:
        ax.fill_between(
            list(points),
            [y.low for y in points.values()],
            [y.high for y in points.values()],
            color=scale.of(shape)["color"],
            alpha=0.1,
            lw=0,
        )
    with_bands = ax.get_ylim()
    ends = max(with_bands[0], 2 * low - high), min(with_bands[1], 2 * high - low)
    ax.set_ylim(*ends)
    if ends != with_bands:
        ax.text(
            *(0.99, 0.02),
            CUT,
            ha="right",
            va="bottom",
            fontsize=8,
            color=SOFT,
            transform=ax.transAxes,
        )


def _places(data: Data) -> list[tuple[float, str]]:
    """(place on the x axis, label) of each entry of that axis."""
    return [
        (entry.value, entry.label)
        for entry in data.spec.axes[data.figure.x]
        if entry.value is not None
    ]


def _baselines(data: Data, cells: Iterable[At], name: str) -> set[float]:
    """The baseline's level on a metric's scale: one level, or several where the baselines of the
    cells differ."""
    if name in ("speedup", "answer_speedup_modelled", "recovery"):
        return {metric(name).shown(1.0)} if any(map(data.is_measured, cells)) else set()
    levels = (
        [data.measured(cell, BASELINE_OF[name]) for cell in cells] if name in BASELINE_OF else []
    )
    return {level.value for level in levels if level is not None}


def _columns(handles: Sequence[Line2D], inches: float) -> int:
    """The most columns of a legend, at most six, that are no wider than the figure."""
    widths = [LETTER_INCHES * len(str(handle.get_label())) + HANDLE_INCHES for handle in handles]
    for columns in range(min(6, len(widths)), 1, -1):
        rows, longer = divmod(len(widths), columns)
        ends = list(accumulate(rows + (column < longer) for column in range(columns)))
        if sum(max(widths[start:end]) for start, end in pairwise([0, *ends])) <= inches:
            return columns
    return 1


def _legend(scales: list[_Scale], shapes: Mapping[str, Look]) -> list[Line2D]:
    handles = [
        Line2D([], [], color=scale.colour, ls=scale.dash, label=metric(scale.metric).label)
        for scale in scales
        if scale.dash is not None
    ]
    for label, shape in shapes.items():
        drawn = (
            {"color": SOFT, "ls": "none", "marker": shape.marker}
            if scales[0].dash
            else scales[0].of(shape)
        )
        handles += [Line2D([], [], label=label, **drawn)] if label else []
    return [*handles, Line2D([], [], color=SOFT, lw=1, ls=_BASELINE_DASH, label="autoregressive")]
