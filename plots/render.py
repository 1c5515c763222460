"""One figure of a report as PNG, PDF and SVG, the same bytes for the same numbers, and its CSV
file."""

from __future__ import annotations

import hashlib
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from plots.data import Data
from plots.style import SOFT, note, style
from results.reports.captions import figure_caption
from results.reports.figures import Own
from results.reports.formats import figure_csv
from results.reports.frame import figure_frame
from results.reports.grid import Grid
from results.reports.spec import FigureSpec

DATA = "Data SHA-256"
"""The key in a PNG's metadata of the SHA-256 of the CSV file that the figure shows."""
SHADES = 128
"""Colours of a PNG, edges of letters and lines included."""


def render(
    spec: FigureSpec, grid: Grid, out_dir: str | Path, frame: pd.DataFrame | None = None
) -> list[Path]:
    """Write <name>.png, .pdf, .svg and .csv into `out_dir` and return their paths. A line under the
    figure states the conditions and names the cells that were not measured. With `frame`, the lines
    of a CSV file, these are drawn.

    plots/KIND.py draws a figure, or the file that a figure of the kind `own` names: its `draw(data)
    -> Figure`. It may have `BARS`, what the caption says of intervals, and `derived(data)`, further
    lines of the CSV file."""
    drawing, data = _file_of(spec), data_of(spec, grid) if frame is None else Data(spec, frame)
    with style(salt=spec.name):
        figure = drawing.draw(data)
        _mark_empty(figure)
        bars = getattr(drawing, "BARS", "bands and bars: 95% interval" * bool(spec.metrics()))
        note(figure, figure_caption(spec, grid, spec.metrics(), bars))
        csv = Path(out_dir) / f"{spec.name}.csv"
        csv.parent.mkdir(parents=True, exist_ok=True)
        if frame is None:
            csv.write_text(figure_csv(spec, data.frame), encoding="utf-8")
        return [*save(figure, Path(out_dir) / spec.name, csv), csv]


def data_of(spec: FigureSpec, grid: Grid) -> Data:
    """What the figure draws."""
    data, derived = Data(spec, figure_frame(spec, grid)), getattr(_file_of(spec), "derived", None)
    return data if derived is None else Data(spec, derived(data))


def _file_of(spec: FigureSpec) -> ModuleType:
    return import_module(
        f"plots.{spec.figure.file if isinstance(spec.figure, Own) else spec.figure.kind}"
    )


def _mark_empty(figure: Figure) -> None:
    """Say in panels without any data that they have none, in place of the ticks of a made-up
    scale."""
    for ax in figure.axes:
        if not np.isfinite(ax.dataLim.get_points()).all() and not ax.texts:
            ax.set(xticks=[], yticks=[])
            ax.text(0.5, 0.5, "not measured", ha="center", transform=ax.transAxes, color=SOFT)


def save(figure: Figure, stem: Path, data: Path | None = None) -> list[Path]:
    """Save as PNG, PDF and SVG without dates or versions; the SVG is transparent. The PNG has a
    palette, which takes a third of the bytes, and names the SHA-256 of `data`, the file with the
    figure's numbers, where there is one."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, so that all three files agree
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, pdf, svg = (stem.with_name(f"{stem.name}.{suffix}") for suffix in ("png", "pdf", "svg"))
    about, drawn = PngInfo(), BytesIO()
    if data is not None and data.exists():
        about.add_text(DATA, hashlib.sha256(data.read_bytes()).hexdigest())
    figure.savefig(drawn, facecolor="white")
    image = Image.open(drawn).convert("RGB").quantize(SHADES, dither=Image.Dither.NONE)
    image.save(png, optimize=True, pnginfo=about, dpi=(figure.dpi, figure.dpi))
    figure.savefig(pdf, metadata={"CreationDate": None, "Producer": None, "Creator": None})
    figure.savefig(svg, transparent=True, metadata={"Date": None, "Creator": None})
    return [png, pdf, svg]
