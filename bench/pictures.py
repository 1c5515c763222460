"""`python -m bench.pictures [FOLDER …]` (`make pictures`): draw the pictures of kept reports from
their CSV files.

FOLDER is one that `output.archive` named, by default each of results/measured. A picture names the
SHA-256 of its CSV file. What only helps to read a figure and is not in that file, such as the level
of the baseline, is left out."""

from __future__ import annotations

import argparse
import gzip
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd

from bench.commands.command import run_command
from bench.config.compose import composer
from bench.config.paths import CONF, PROJECT
from bench.reports.overrides import Selection
from bench.reports.render import kept_lines
from bench.reports.run import load_report
from results.reports.figures import Traced
from results.reports.grid import FIELDS, Conditions, Grid, Outcome
from results.reports.spec import FigureSpec, TableSpec
from results.store.files import copy_file

if TYPE_CHECKING:
    from bench.config.compose import Composer
    from results.reports.spec import Coords, ReportSpec

MEASURED = PROJECT / "results" / "measured"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    folders = parser.parse_args(argv).folders or sorted(
        path.parent for path in MEASURED.glob("*/TABLES.md")
    )
    return run_command(lambda: draw_all(folders))


def draw_all(folders: Sequence[Path]) -> None:
    """Draw what has a PNG file. Raises ValueError for a folder without kept reports."""
    with composer() as hydra:
        for folder in folders:
            if not (listing := kept_lines(folder)):
                raise ValueError(
                    f"{folder}: no TABLES.md that lists reports; give a folder that output.archive "
                    "named"
                )
            for name, line in listing.items():
                spec = spec_of(line, hydra) if (folder / f"{name}.png").exists() else None
                if isinstance(spec, FigureSpec):  # a report of this version that is a figure
                    draw(folder, spec)
                    print(folder / f"{name}.png")


def spec_of(line: str, hydra: Composer) -> TableSpec | FigureSpec | None:
    """The report of a line of TABLES.md, as its command makes it; None for a report of an earlier
    version."""
    report, *overrides = shlex.split(line.rpartition("`python -m bench ")[2].rstrip("`"))
    if not (CONF / "report" / f"{report.removeprefix('report=')}.yaml").exists():
        return None
    spec = Selection.from_overrides(overrides).edition(
        load_report(report.removeprefix("report="), hydra)
    )
    assert isinstance(spec, TableSpec | FigureSpec)
    return spec


def draw(folder: Path, spec: FigureSpec) -> None:
    """Draw <name>.png from <name>.csv. Numbers that are older than an axis of the report are of its
    first entry."""
    from plots.render import render  # matplotlib, which a wrong command should not cost

    csv = next(
        csv for csv in (folder / f"{spec.name}.csv", folder / f"{spec.name}.csv.gz") if csv.exists()
    )
    frame = pd.read_csv(
        csv, dtype=dict.fromkeys(spec.axes, str), keep_default_na=False, na_values=[""]
    )
    later = {axis: entries[:1] for axis, entries in spec.axes.items() if axis not in frame}
    frame = frame.assign(**{axis: entries[0].label for axis, entries in later.items()})
    spec = spec.model_copy(update={"axes": {**spec.axes, **later}})
    grid = (
        grid_of(spec, frame)
        if "state" in frame
        else positions_of(spec, folder / f"{spec.name}.environment.json")
    )
    with TemporaryDirectory() as made:
        (Path(made) / f"{spec.name}.csv").write_bytes(content(csv))
        if isinstance(figure := spec.figure, Traced):
            frame["place"] = frame["view"].map(
                {view.title or view.x: i for i, view in enumerate(figure.views)}
            )
        png, *_ = render(spec, grid, made, frame)
        copy_file(png, folder / png.name)


def content(csv: Path) -> bytes:
    """A kept CSV file, unpacked."""
    return gzip.decompress(csv.read_bytes()) if csv.suffix == ".gz" else csv.read_bytes()


def grid_of(spec: ReportSpec, frame: pd.DataFrame) -> Grid:
    """What the line under a figure says of its cells: state, number of prompts, conditions."""
    grid: dict[Coords, Outcome] = {}
    for row in frame.to_dict("records"):
        coords = tuple(row[axis] for axis in spec.axes)
        if row["state"] != "measured":
            grid[coords] = Outcome(row["state"], reason=str(row.get("reason", "")))
            continue
        own: dict[str, Any] = {
            name: None if pd.isna(row[name]) else row[name]
            for name in FIELDS
            if name in row and name not in ("session", *spec.axes)
        }
        held: Any = SimpleNamespace(n=int(row["n"]), timed=0)
        grid[coords] = Outcome.measured(held, conditions=Conditions(**{"theta": None} | own))
    return grid


def positions_of(spec: ReportSpec, environment: Path) -> Grid:
    """As `grid_of`, of a figure of traced positions, whose CSV file has only these."""
    held: Any = SimpleNamespace(
        n=json.loads(environment.read_text(encoding="utf-8"))["run"]["prompts"], timed=0
    )
    return {point.coords: Outcome.measured(held) for point in spec.points()}


if __name__ == "__main__":
    sys.exit(main())
