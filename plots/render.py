"""One figure of a report as PNG, PDF and SVG, the same bytes for the same numbers, and its CSV
file."""

from __future__ import annotations

import ast
import hashlib
import inspect
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
CODE = "Code SHA-256"
"""The key of the SHA-256 of the code in `plots` that drew it."""
SHADES = 128
"""Colours of a PNG, edges of letters and lines included."""


def render(
    spec: FigureSpec, grid: Grid, out_dir: str | Path, frame: pd.DataFrame | None = None
) -> list[Path]:
    """Write <name>.png, .pdf, .svg and .csv into `out_dir` and return their paths. A line under the
    figure states the conditions and names the cells that were not measured. With `frame`, the lines
    of a CSV file, these are drawn.

    plots/KIND.py draws a figure, or the file that a figure of the kind `own` names: its `draw(data)
    -> Figure`. It may have `BARS`, what the caption says of intervals, `derived(data)`, further
    lines of the CSV file, and `left_out(data)`, which panels without any number are not drawn."""
    drawing, data = _file_of(spec), data_of(spec, grid) if frame is None else Data(spec, frame)
    with style(salt=spec.name):
        figure = drawing.draw(data)
        _mark_empty(figure)
        bars = getattr(drawing, "BARS", "bands and bars: 95% interval" * bool(spec.metrics()))
        said = getattr(drawing, "left_out", lambda data: "")(data)
        caption = figure_caption(spec, grid, spec.metrics(), bars)
        note(figure, "; ".join(filter(None, [caption, said])))
        csv = Path(out_dir) / f"{spec.name}.csv"
        csv.parent.mkdir(parents=True, exist_ok=True)
        if frame is None:
            csv.write_text(figure_csv(spec, data.frame), encoding="utf-8")
        return [*save(figure, Path(out_dir) / spec.name, csv, code_of(spec)), csv]


def code_of(spec: FigureSpec) -> str:
    """The SHA-256 of the syntax of the modules of `plots` that draw a figure, the same by every
    version of Python: comments, docstrings and formatting do not count."""
    trees = {name: ast.parse(inspect.getsource(import_module(name))) for name in _modules(spec)}
    plain = [_plain(trees[name]) for name in sorted(trees)]
    return hashlib.sha256(repr(plain).encode()).hexdigest()


def _modules(spec: FigureSpec) -> set[str]:
    """The modules of `plots` that draw a figure: its own, this one, and those that they import."""
    names = {_file_of(spec).__name__, __name__}
    while more := {other for name in names for other in _imported(name)} - names:
        names |= more
    return names


def _imported(name: str) -> set[str]:
    tree = ast.parse(inspect.getsource(import_module(name)))
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    whole = {node.module or "" for node in froms}
    parts = {
        f"plots.{part.name}" for node in froms if node.module == "plots" for part in node.names
    }
    return {module for module in whole | parts if module.startswith("plots.")}


def _plain(node: object) -> object:
    """A syntax tree as nested lists, without docstrings and empty fields."""
    if isinstance(node, list):
        return [_plain(part) for part in node if not _is_text(part)]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return [type(node).__name__, *((name, _plain(value)) for name, value in fields)]


def _is_text(node: object) -> bool:
    """Whether a statement is a string by itself, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


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


def save(figure: Figure, stem: Path, data: Path | None = None, code: str = "") -> list[Path]:
    """Save as PNG, PDF and SVG without dates or versions; the SVG is transparent. The PNG has a
    palette, which takes a third of the bytes, and names the SHA-256 of `data`, the file with the
    figure's numbers, and of the `code` that drew it, where they are known."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, so that all three files agree
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, pdf, svg = (stem.with_name(f"{stem.name}.{suffix}") for suffix in ("png", "pdf", "svg"))
    about, drawn = PngInfo(), BytesIO()
    if data is not None and data.exists():
        about.add_text(DATA, hashlib.sha256(data.read_bytes()).hexdigest())
    if code:
        about.add_text(CODE, code)
    figure.savefig(drawn, facecolor="white")
    image = Image.open(drawn).convert("RGB").quantize(SHADES, dither=Image.Dither.NONE)
    image.save(png, optimize=True, pnginfo=about, dpi=(figure.dpi, figure.dpi))
    figure.savefig(pdf, metadata={"CreationDate": None, "Producer": None, "Creator": None})
    figure.savefig(svg, transparent=True, metadata={"Date": None, "Creator": None})
    return [png, pdf, svg]
