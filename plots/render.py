"""One figure of a report as PNG, PDF and SVG, the same bytes for the same grid."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from plots import agreement, bars, gains, limit, pareto, sweep, traced, when
from plots.style import SOFT, note, style
from results.metrics.catalog import CLOCKED
from results.reports.conditions import stated
from results.reports.grid import Grid, conditions, sizes, unmeasured
from results.reports.spec import FigureSpec

_DRAW: dict[str, Callable[..., Figure]] = {
    "sweep": sweep.draw, "pareto": pareto.draw, "bars": bars.draw, "traced": traced.draw,
    "gains": gains.draw, "matrices": agreement.draw_matrices, "agreement": agreement.draw_agreement, "when": when.draw,
    "limit": limit.draw}
"""kind of a figure -> draw(figure, report, grid)"""

DATA = "Data SHA-256"
"""The key in a PNG's metadata of the SHA-256 of the CSV file that the figure shows."""


def render(spec: FigureSpec, grid: Grid, out_dir: str | Path) -> list[Path]:
    """Write <name>.png, .pdf and .svg into `out_dir`, where <name>.csv has its numbers, and return their paths. A line
    under the figure states the conditions and names the cells that were not measured."""
    with style(salt=spec.name):
        figure = _DRAW[spec.figure.kind](spec.figure, spec, grid)
        _mark_empty(figure)
        note(figure, _caption(spec, grid))
        return save(figure, Path(out_dir) / spec.name, Path(out_dir) / f"{spec.name}.csv")


def _mark_empty(figure: Figure) -> None:
    """Say in panels without any data that they have none, in place of the ticks of a made-up scale."""
    for ax in figure.axes:
        if not np.isfinite(ax.dataLim.get_points()).all() and not ax.texts:
            ax.set(xticks=[], yticks=[])
            ax.text(0.5, 0.5, "not measured", ha="center", transform=ax.transAxes, color=SOFT)


def save(figure: Figure, stem: Path, data: Path | None = None) -> list[Path]:
    """Save as PNG, PDF and SVG without dates or versions; the SVG is transparent. The PNG names the SHA-256 of `data`,
    the file with the figure's numbers, where there is one."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, so that all three files agree
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, pdf, svg = (stem.with_name(f"{stem.name}.{suffix}") for suffix in ("png", "pdf", "svg"))
    digest = {DATA: hashlib.sha256(data.read_bytes()).hexdigest()} if data is not None and data.exists() else {}
    figure.savefig(png, facecolor="white", metadata={"Software": None, **digest})
    figure.savefig(pdf, metadata={"CreationDate": None, "Producer": None, "Creator": None})
    figure.savefig(svg, transparent=True, metadata={"Date": None, "Creator": None})
    return [png, pdf, svg]


def _caption(spec: FigureSpec, grid: Grid) -> str:
    """Prompts, conditions and bands; then what was not measured."""
    bands = "bands and bars: 95% interval" if spec.figure.intervals and conditions(grid) else ""
    size = sizes(grid, bool(CLOCKED & set(spec.figure.metrics())))
    parts, absent = [size, bands, *stated(conditions(grid))], unmeasured(spec, grid)
    if absent:
        first, missing = absent[0]
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        parts.append(f"not measured: {first} ({missing.state}: {missing.reason}){more}")
    return "; ".join(part for part in parts if part)
