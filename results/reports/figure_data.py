"""The numbers behind a figure as CSV: one line per point and metric, or per traced position."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.metrics.trace_metrics import quantities
from results.reports.conditions import columns_of
from results.reports.figures import Traced
from results.reports.formats import spreadsheet_text
from results.reports.grid import Grid, outcome
from results.reports.spec import FigureSpec
from results.store.reasons import printable

if TYPE_CHECKING:
    import pandas as pd

DIGITS = "%.5g"
"""Of traced quantities: logits of float32 models have not many more."""


def render_data(spec: FigureSpec, grid: Grid, out_dir: str | Path) -> list[Path]:
    """Write <name>.csv into `out_dir` and return its path. Numbers are in the summary's units. A figure of the meaning
    of answers has none: its numbers are drawn as they are."""
    if not (spec.figure.metrics() or isinstance(spec.figure, Traced)):
        return []
    path = Path(out_dir) / f"{spec.name}.csv"
    if isinstance(spec.figure, Traced):
        frame = _positions(spec, grid, spec.figure)
    else:
        import pandas as pd  # takes half a second, which a dry run should not cost

        frame = pd.DataFrame([line for point in spec.points() for line in _lines(spec, point.coords, grid)])
        frame = frame.astype(dict.fromkeys(frame.columns.intersection(["n", "seed", "repeats"]), "Int64"))
    texts = {str(name): frame[name].map(spreadsheet_text) for name in frame.select_dtypes(exclude="number")}
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = frame.assign(**texts).rename(columns=spreadsheet_text)
    path.write_text(printable(plain.to_csv(index=False, float_format=DIGITS if spec.trace else None)), encoding="utf-8")
    return [path]


def _lines(spec: FigureSpec, coords: tuple[str, ...], grid: Grid) -> Iterator[dict[str, Any]]:
    """The metrics of one point."""
    held = outcome(grid, coords)
    summary, fixed = held.summary, {"report": spec.name, **spec.labels(coords)}
    if summary is None:
        yield {**fixed, "state": held.state, "reason": held.reason}
        return
    around = {"n": summary.n, **columns_of(held.conditions, spec.axes), "state": held.state}
    for name in spec.figure.metrics():
        low, high = summary.interval(name) or (None, None)
        yield {**fixed, "value_name": name, "value": summary.value(name), "ci_low": low, "ci_high": high,
               **around}


def _positions(spec: FigureSpec, grid: Grid, traced: Traced) -> pd.DataFrame:
    """The positions of each view, those outside its range included."""
    frames = []
    for point in spec.points():
        held = outcome(grid, point.coords)
        for view in traced.views:
            if held.trace is None or not held.trace.exists():
                continue
            names = (view.x,) if view.y is None else (view.x, view.y)
            frame = quantities(held.trace, names, view.points == "tested")
            frames.append(frame.assign(report=spec.name, view=view.title or view.x, **spec.labels(point.coords)))
    import pandas as pd  # takes half a second, which a dry run should not cost

    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"report": []})
