"""Style of all figures: one ink, the Okabe–Ito colours, a marker and a line style per series, no
text under 8 pt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from textwrap import wrap
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

Dash = str | tuple[int, tuple[float, ...]]

INK = "#23262b"
SOFT = "#6a6e76"
GRID = "#b9bcc2"
# Okabe & Ito, Color Universal Design (2008), in an order whose neighbours also differ in lightness.
BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#CC79A7",
    "#56B4E9",
)
# Further ones of Paul Tol's muted scheme, for more than six series.
INDIGO, OLIVE, WINE, GREY, BROWN = "#332288", "#999933", "#882255", "#777777", "#663333"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, VERMILLION, SKY, INDIGO, OLIVE, WINE, GREY, BROWN)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Dash, ...] = (
    "-",
    (0, (5, 1.6)),
    (0, (1.4, 1.4)),
    (0, (6, 1.5, 1.4, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
)
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----")
PANEL_INCHES = (4.1, 3.2)

_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.titlesize": 10,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "figure.titlesize": 11,
    "mathtext.fontset": "dejavusans",
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.alpha": 0.45,
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "hatch.linewidth": 0.6,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "axes.unicode_minus": True,
}


class Look(NamedTuple):
    """Colour, marker, line style and hatch of a series."""

    colour: str
    marker: str
    dash: Dash
    hatch: str


def look(index: int) -> Look:
    """The look of the index-th series. Colours, markers, line styles and hatches cycle with
    different periods, so that no two of the first thirty series look alike."""
    return Look(
        COLOURS[index % len(COLOURS)],
        MARKERS[index % len(MARKERS)],
        DASHES[index % len(DASHES)],
        HATCHES[index % len(HATCHES)],
    )


@contextmanager
def style(salt: str = "leeway") -> Iterator[None]:
    """Context for drawing: ignores the user's matplotlibrc and restores matplotlib's settings on
    exit.

    `salt` makes the ids inside an SVG reproducible."""
    with mpl.rc_context():
        mpl.rcdefaults()
        settings: Any = _RC | {"svg.hashsalt": salt}
        mpl.rcParams.update(settings)
        yield


def panel_grid(
    count: int, columns: int = 3, inches: tuple[float, float] = PANEL_INCHES
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` equal panels, at most `columns` side by side."""
    wide = min(count, columns)
    high = -(-count // wide)
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06)
    figure = Figure(figsize=(inches[0] * wide, inches[1] * high + 0.5), layout=layout)
    axes = figure.subplots(high, wide, squeeze=False).ravel().tolist()
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def legend_of(axes: Iterable[Axes]) -> tuple[list[Artist], list[str]]:
    """Handles and labels of each series once, even if it is missing from some panels."""
    handles = {
        label: handle
        for ax in axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    return list(handles.values()), list(handles)


def note(figure: Figure, text: str) -> None:
    """Add small print under the figure, wrapped to its width."""
    if text:
        letters = int(figure.get_figwidth() * 17)
        figure.supxlabel("\n".join(wrap(text, letters)), x=0.01, ha="left", fontsize=8, color=SOFT)
