"""Names beside the points of many series, in place of a long legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import cos, hypot, pi, sin
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from numpy.typing import NDArray

MOST = 6
"""Series that a legend is read for; more are named in the panels."""
_POINTS, _GAP, _MARKER = 8.0, (5.0, 12.0, 22.0, 34.0), 4.0
"""Size of a name, distances from its point that are tried, and half of a marker, in points."""
_DIRECTIONS, _COVERED, _STEP = 16, 0.25, 3.0
"""Directions that are tried; how much of a name thin lines may run through; pixels between the points of such lines."""
_AROUND = np.array([(cos(2 * pi * step / _DIRECTIONS), sin(2 * pi * step / _DIRECTIONS))
                    for step in range(_DIRECTIONS)])
Floats = NDArray[np.float64]


def name_series(figure: Figure, axes: Sequence[Axes], **place: Any) -> None:
    """A legend of the series of these panels, at `place`. Of more than `MOST` series, those that have room beside one
    of their points in every panel are named there, and the legend holds the others."""
    handles: dict[str, Artist] = {}
    for ax in axes:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    left: list[str] = [] if len(handles) > MOST else list(handles)
    while len(left) < len(handles):
        if left:
            _legend(figure, {name: handles[name] for name in handles if name in left}, place)
        written = _write(figure, axes, [name for name in handles if name not in left])
        unplaced = [name for name, text in written if text is None]
        if not unplaced:
            return
        left += dict.fromkeys(unplaced)
        for _, text in written:
            if text is not None:
                text.remove()
    _legend(figure, handles, place)


def _legend(figure: Figure, handles: Mapping[str, Artist], place: Mapping[str, Any]) -> None:
    for former in figure.legends:
        former.remove()
    if handles:
        figure.legend(handles.values(), handles.keys(), **place)


def _write(figure: Figure, axes: Sequence[Axes], names: Sequence[str]) -> list[tuple[str, Annotation | None]]:
    """(name, its text) of every panel that has points of it; None for one without room."""
    figure.draw_without_rendering()
    written: list[tuple[str, Annotation | None]] = []
    for ax in axes:
        scale = figure.dpi / 72
        points = {name: _points(ax, name) for name in names}
        every = [point for name in ax.get_legend_handles_labels()[1] for point in _points(ax, name)]
        half = _MARKER * scale
        taken = [np.array([(x - half, y - half), (x + half, y + half)]) for x, y in dict.fromkeys(every)]
        taken += [text.get_window_extent().get_points() for text in ax.texts]
        thin = _thin(ax)
        # the crowded ones first, while there is room
        for name in sorted(filter(points.get, names), key=lambda name: _room(points[name], every)):
            written.append((name, _place(ax, name, points[name], taken, thin, scale)))
    return written


def _points(ax: Axes, name: str) -> list[tuple[float, float]]:
    """Where the series of this name has points, in pixels."""
    found: list[tuple[float, float]] = []
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
        line = getattr(handle, "lines", (handle,))[0]
        if label == name and hasattr(line, "get_xydata"):
            xy = np.asarray(line.get_xydata(), float)
            found += [(float(x), float(y)) for x, y in ax.transData.transform(xy[np.isfinite(xy).all(1)])]
    return found


def _room(points: Sequence[tuple[float, float]], every: Sequence[tuple[float, float]]) -> float:
    """The distance of the most remote of these points from the nearest one of another series."""
    others = [point for point in every if point not in points]
    return max(min((hypot(x - u, y - v) for u, v in others), default=np.inf) for x, y in points)


def _thin(ax: Axes) -> Floats:
    """Points along the lines and the error bars of a panel, `_STEP` pixels apart, in pixels: [N, 2]."""
    paths = [line.get_transform().transform(line.get_xydata()) for line in ax.lines]
    paths += [ax.transData.transform(path.vertices) for bars in ax.collections for path in bars.get_paths()]
    parts = [np.zeros((0, 2))]
    for path in paths:
        for start, end in pairwise(path):
            length = hypot(*(end - start))
            if 0 < length < np.inf:
                parts.append(start + np.linspace(0, 1, max(2, int(length / _STEP)))[:, None] * (end - start))
    return np.concatenate(parts)


def _place(ax: Axes, name: str, points: Sequence[tuple[float, float]], taken: list[Floats], thin: Floats,
           scale: float) -> Annotation | None:
    """The name where it covers nothing of `taken` and least of the lines, its box then taken, too; None without such a
    place."""
    colour = next(_colour(handle) for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
                  if label == name)
    arrow = {"arrowstyle": "-", "color": colour, "lw": 0.5, "shrinkA": 0, "shrinkB": _MARKER}
    text = ax.annotate(name, (0, 0), (0, 0), textcoords="offset points", ha="center", va="center", fontsize=_POINTS,
                       color=colour, zorder=5, annotation_clip=False, arrowprops=arrow)
    text.set_in_layout(False)
    size = np.array(Text.get_window_extent(text).size)
    panel, others = ax.get_window_extent(), np.array(taken)
    best, least = None, _COVERED
    for gap in _GAP:
        for point in reversed(points):
            centres = point + _AROUND * (gap * scale + size / 2)
            low, high = centres - size / 2 - 1, centres + size / 2 + 1
            inside = (low >= panel.min).all(1) & (high <= panel.max).all(1)
            covers = np.any(np.all((low[:, None] < others[:, 1]) & (high[:, None] > others[:, 0]), axis=2), axis=1)
            for place in np.flatnonzero(inside & ~covers):
                through = ((thin >= low[place]) & (thin <= high[place])).all(1).sum() * _STEP / size.sum()
                cost = through + 0.05 * _GAP.index(gap)
                if cost < least:
                    best, least = (point, centres[place], gap), cost
    if best is None:
        text.remove()
        return None
    point, centre, gap = best
    taken.append(np.array([centre - size / 2, centre + size / 2]))
    text.xy = tuple(ax.transData.inverted().transform(point))
    text.set_position(tuple((centre - point) / scale))
    if gap == _GAP[0] and text.arrow_patch is not None:
        text.arrow_patch.set_visible(False)
    return text


def _colour(handle: Any) -> Any:
    return getattr(handle, "lines", (handle,))[0].get_color()
