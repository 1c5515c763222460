"""The pictures of kept reports, drawn again from their CSV files (`make pictures`).

A picture that shows what its CSV file lacks, such as the level of the baseline or a metric of
another version, stays as it was drawn when it was measured."""

from __future__ import annotations

import gzip
import io
import json
import shlex
import shutil
from collections.abc import Mapping
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
from results.reports.grid import FIELDS, Conditions, Grid, Outcome, machine
from results.reports.spec import FigureSpec

MEASURED = PROJECT / "results" / "measured"


def redraw(folder: Path) -> list[Path]:
    """Draw every PNG of a folder whose report is a figure of this version; returns their paths."""
    with composer() as hydra:
        pictures = sorted(folder.glob("*.png"))
        return [picture for picture in pictures if redrawn(picture, hydra)]


def redrawn(picture: Path, hydra: Composer) -> bool:
    """Draw a picture from the CSV file beside it; false where that cannot be done."""
    spec = spec_of(picture, hydra)
    if spec is None:
        return False
    record = json.loads(picture.with_suffix(".environment.json").read_text(encoding="utf-8"))
    with TemporaryDirectory() as made:
        png, *_ = render(*_drawn(spec, picture, record, made))
        shutil.copy(png, picture)
    return True


def spec_of(picture: Path, hydra: Composer) -> FigureSpec | None:
    """The report of a picture; None where its report has left, or draws what its CSV file does not
    hold."""
    record = json.loads(picture.with_suffix(".environment.json").read_text(encoding="utf-8"))
    report, *overrides = shlex.split(record["command"].removeprefix("python -m bench report="))
    if not (CONF / "report" / f"{report}.yaml").exists():
        return None
    spec = PairSelection.from_overrides(overrides).edition(load_report(report, hydra))
    if not isinstance(spec, FigureSpec):
        return None
    held = pd.read_csv(io.BytesIO(content(picture.with_suffix(".csv"))), low_memory=False)
    needed = {*spec.figure.metrics(), *spec.figure.helpers()}
    return spec if needed <= set(held.get("value_name", needed)) else None


def _drawn(
    spec: FigureSpec, picture: Path, record: Mapping[str, Any], made: str
) -> tuple[FigureSpec, Grid, str, pd.DataFrame]:
    """What `render` is given; the CSV file is copied into the folder `made`."""
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
    return spec, grid_of(spec, frame, record), made, frame


def content(csv: Path) -> bytes:
    """The CSV file of this name, which may be kept as .csv.gz."""
    packed = csv.with_suffix(".csv.gz")
    return gzip.decompress(packed.read_bytes()) if packed.exists() else csv.read_bytes()


def grid_of(spec: FigureSpec, frame: pd.DataFrame, record: Mapping[str, Any]) -> Grid:
    """What the line under a figure says of its cells: state, number of prompts, conditions. Of a
    figure of traced positions they are in its environment record."""
    if "state" not in frame:
        count = SimpleNamespace(n=record["run"]["prompts"], timed=0)
        traced = Outcome.measured(count, conditions=conditions_of(spec, record))
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


def conditions_of(spec: FigureSpec, record: Mapping[str, Any]) -> Conditions:
    """How the cells of a report were measured, as far as its overrides and its environment record
    tell."""
    given = dict(word.split("=", 1) for word in [*spec.base, *shlex.split(record["command"])[4:]])
    return Conditions(
        pair=given.get("pair", "tiny"),
        temperature=float(given.get("decoding.temperature", 0)),
        seed=int(given.get("seed", 0)),
        repeats=1,
        theta=None,
        machine=machine(dict(record), [record["cpu"]["threads"]]),
        date=record["since"][:10],
    )


if __name__ == "__main__":
    for folder in sorted(MEASURED.iterdir()):
        for picture in redraw(folder) if folder.is_dir() else ():
            print(picture)
