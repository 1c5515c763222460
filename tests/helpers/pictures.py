"""The pictures of kept reports, drawn again from their CSV files (`make pictures`).

What only helps to read a figure and is not in its CSV file, such as the level of the baseline, is
left out."""

from __future__ import annotations

import gzip
import json
import shlex
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pandas as pd

from bench.config.compose import Composer, composer
from bench.config.paths import CONF, PROJECT
from bench.reports.overrides import PairSelection
from bench.reports.run import load_report
from plots.render import render
from results.reports.figures import Traced
from results.reports.grid import FIELDS, Conditions, Grid, Outcome
from results.reports.spec import FigureSpec

MEASURED = PROJECT / "results" / "measured"


def redraw(folder: Path) -> list[Path]:
    """Draw every PNG of a folder whose report is a figure of this version; returns their paths."""
    with composer() as hydra:
        pictures = sorted(folder.glob("*.png"))
        return [picture for picture in pictures if redrawn(picture, hydra)]


def redrawn(picture: Path, hydra: Composer) -> bool:
    """Draw a picture from the CSV file beside it; false where its report has left."""
    record = json.loads(picture.with_suffix(".environment.json").read_text(encoding="utf-8"))
    report, *overrides = shlex.split(record["command"].removeprefix("python -m bench report="))
    if not (CONF / "report" / f"{report}.yaml").exists():
        return False
    spec = PairSelection.from_overrides(overrides).edition(load_report(report, hydra))
    if not isinstance(spec, FigureSpec):
        return False
    with TemporaryDirectory() as made:
        csv = Path(made) / f"{picture.stem}.csv"
        csv.write_bytes(content(picture.with_suffix(".csv")))
        frame = pd.read_csv(
            csv, dtype=dict.fromkeys(spec.axes, str), keep_default_na=False, na_values=[""]
        )
        # numbers that are older than an axis of the report are of its first entry
        later = {axis: entries[:1] for axis, entries in spec.axes.items() if axis not in frame}
        frame = frame.assign(**{axis: entries[0].label for axis, entries in later.items()})
        spec = spec.model_copy(update={"axes": {**spec.axes, **later}})
        if isinstance(spec.figure, Traced):
            places = {view.title or view.x: i for i, view in enumerate(spec.figure.views)}
            frame["place"] = frame["view"].map(places)
        png, *_ = render(spec, grid_of(spec, frame, record["run"]["prompts"]), made, frame)
        shutil.copy(png, picture)
    return True


def content(csv: Path) -> bytes:
    """The CSV file of this name, which may be kept as .csv.gz."""
    packed = csv.with_suffix(".csv.gz")
    return gzip.decompress(packed.read_bytes()) if packed.exists() else csv.read_bytes()


def grid_of(spec: FigureSpec, frame: pd.DataFrame, prompts: int) -> Grid:
    """What the line under a figure says of its cells: state, number of prompts, conditions. A
    figure of traced positions has only these in its file."""
    if "state" not in frame:
        traced = Outcome.measured(SimpleNamespace(n=prompts, timed=0))
        return {point.coords: traced for point in spec.points()}
    named = [name for name in FIELDS if name in frame and name not in ("session", *spec.axes)]
    grid: Grid = {}
    for row in frame.to_dict("records"):
        coords = tuple(row[axis] for axis in spec.axes)
        if row["state"] != "measured":
            grid[coords] = Outcome(row["state"], reason=str(row.get("reason", "")))
            continue
        values: dict[str, Any] = {name: None if pd.isna(row[name]) else row[name] for name in named}
        count = SimpleNamespace(n=int(row["n"]), timed=0)
        grid[coords] = Outcome.measured(count, conditions=Conditions(**{"theta": None} | values))
    return grid


if __name__ == "__main__":
    for folder in sorted(MEASURED.iterdir()):
        for picture in redraw(folder) if folder.is_dir() else ():
            print(picture)
