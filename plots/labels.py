"""Names beside points, where they hide neither points nor each other; and what the papers call what
the code names otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

NAMES = {
    "M_T": "target alone",
    "M_D": "draft alone",
    "SD": "speculative decoding",
    "SD, p/q": "speculative decoding, p/q (released)",
    "JS, released": "JS as released",
    "JS, released, top 50": "JS as released, top 50",
    "ARC": "ARC-Decode",
    "ARC released": "ARC-Decode, released",
    "typical": "typical (Medusa)",
    "q_mode: draft": "EAGLE's shortcut (q_mode: draft)",
}
"""Label of a report -> what a reader of the papers calls it."""
OFFSETS = tuple(
    (right * far, above * far)
    for far in (5, 9, 16, 26)
    for right, above in (
        (1, 1),
        (1, -1),
        (-1, 1),
        (-1, -1),
        (1.4, 0),
        (-1.4, 0),
        (0, 1.4),
        (0, -1.4),
    )
)
"""Places that a name may take, in points from its own point, the best first."""
ACROSS = {1: "left", 0: "center", -1: "right"}
UP = {1: "bottom", 0: "center", -1: "top"}
"""Sign of an offset -> how a text stands to it."""
MARKER_POINTS = 4.5
"""Half of the space that a point keeps free."""


class Name(NamedTuple):
    """A text for the point at `place`, in data units."""

    text: str
    place: tuple[float, float]
    colour: str


def named(label: str) -> str:
    return NAMES.get(label, label)


def write(
    figure: Figure, names: Sequence[tuple[Axes, Name]], taken: Sequence[tuple[Axes, float, float]]
) -> None:
    """Write the names of points, each at the first of OFFSETS that hides the least of the points
    `taken` and of the names written before."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    scale = figure.dpi / 72
    full = [
        _around(ax.transData.transform((x, y)).tolist(), MARKER_POINTS * scale)
        for ax, x, y in taken
    ]
    for ax, name in names:
        boxes = []
        for offset in OFFSETS:
            text = _written(ax, name, offset)
            boxes.append((_hidden(text.get_window_extent(), full, ax.get_window_extent()), text))
        least = min(hidden for hidden, _ in boxes)
        best = next(text for hidden, text in boxes if hidden == least)
        for _, text in boxes:
            if text is not best:
                text.remove()
        full.append(best.get_window_extent())


def sign(number: float) -> int:
    return (number > 0) - (number < 0)


def _written(ax: Axes, name: Name, offset: tuple[float, float]) -> Annotation:
    right, above = offset
    text = ax.annotate(
        name.text,
        name.place,
        xytext=offset,
        textcoords="offset points",
        fontsize=8,
        color=name.colour,
        ha=ACROSS[sign(right)],
        va=UP[sign(above)],
        annotation_clip=False,
    )
    text.set_in_layout(False)
    return text


def _hidden(box: Bbox, full: Sequence[Bbox], panel: Bbox) -> float:
    """The area that a text at this place would hide or that lies outside of its panel."""
    inside = Bbox.intersection(box, panel)
    outside = box.width * box.height - (inside.width * inside.height if inside else 0)
    over = [Bbox.intersection(box, other) for other in full]
    return outside + sum(both.width * both.height for both in over if both)


def _around(at: Sequence[float], half: float) -> Bbox:
    return Bbox.from_extents(at[0] - half, at[1] - half, at[0] + half, at[1] + half)
