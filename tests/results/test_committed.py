"""The committed reports: each has its files, its command, and pictures of its own numbers; one
number has one value in all of them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from pathlib import Path

import pytest
from PIL import Image

from bench.config.compose import composer
from plots.render import CODE, DATA, code_of
from results.reports.formats import figure_csv
from results.reports.frame import figure_frame
from tests.helpers.consistency import IDENTITY, VALUES, contradictions
from tests.helpers.pictures import content, spec_of
from tests.helpers.synthetic_cells import figure_spec, made_up

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "results" / "measured"
LINE = re.compile(
    r"- \[[^]]+\]\((?P<shown>\S+)\): \[numbers\]\((?P<numbers>\w+\.csv(\.gz)?)\), \[environment\]"
    r"\((?P<environment>\S+)\), `(?P<command>[^`]+)`"
)
REPORTS = {
    f"{listing.parent.name}/{listed['numbers']}": (listing.parent, listed)
    for listing in sorted(MEASURED.glob("*/TABLES.md"))
    for listed in LINE.finditer(listing.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_names_its_own_command(report: str) -> None:
    folder, listed = REPORTS[report]
    assert (folder / listed["shown"]).exists() and (folder / listed["numbers"]).exists()
    assert (
        json.loads((folder / listed["environment"]).read_text(encoding="utf-8"))["command"]
        == listed["command"]
    )


@pytest.mark.parametrize(
    "listing", sorted(MEASURED.glob("*/TABLES.md")), ids=lambda file: file.parent.name
)
def test_a_listing_names_every_report_of_its_folder(listing: Path) -> None:
    lying = {file.name for file in listing.parent.glob("*.csv*")}
    listed = {line["numbers"] for line in LINE.finditer(listing.read_text(encoding="utf-8"))}
    assert listed == lying


def test_every_committed_picture_shows_its_committed_numbers() -> None:
    pictures = sorted({*MEASURED.rglob("*.png"), *(ROOT / "docs").rglob("*.png")})
    assert len(pictures) > 10
    for picture in pictures:
        with Image.open(picture) as image:
            shown = image.info.get(DATA)
        assert shown == hashlib.sha256(content(picture.with_suffix(".csv"))).hexdigest(), (
            f"{picture}: run `make pictures`"
        )


def test_every_committed_picture_is_drawn_by_this_code() -> None:
    """All but those whose report has left, and those that show what their CSV file lacks."""
    drawn = {}
    with composer() as hydra:
        for picture in sorted(MEASURED.rglob("*.png")):
            if spec := spec_of(picture, hydra):
                drawn[picture] = code_of(spec)
    assert len(drawn) > 10
    for picture, code in drawn.items():
        with Image.open(picture) as image:
            assert image.info.get(CODE) == code, f"{picture}: run `make pictures`"


def test_committed_files_do_not_contradict_each_other() -> None:
    compared, listed = contradictions(sorted((MEASURED / "embedded_cpu").glob("*.csv")))
    assert listed == [] and {"controls.csv", "newer_rules.csv", "mars_table1.csv"} <= compared


@pytest.mark.parametrize(("name", "count"), [("tau", 1), ("over_best", 0)])
def test_a_planted_contradiction_is_found(name: str, count: int, tmp_path: Path) -> None:
    """A number that another file gives differently; one of a table's own verdict may differ."""
    files = {tmp_path / "a.csv": 1.5, tmp_path / "b.csv": 2.0}
    for file, value in files.items():
        head = ",".join([*IDENTITY, *VALUES])
        file.write_text(f"{head}\ncell,0,4,2026-01-01,{name},{value},1,3\n")
    compared, said = contradictions(files)
    assert compared == {"a.csv", "b.csv"} and len(said) == count
    assert all(line.startswith(f"{name} of cell") for line in said)


def test_numbers_behind_a_figure() -> None:
    axes = {"theta": {"override": "rule.theta={}", "values": [0.8, 0.9]}}
    spec = figure_spec(
        axes, {"kind": "sweep", "x": "theta", "left": "accuracy", "right": "speedup"}
    )
    cell = made_up(speedup=1.5, right=2)
    accuracy, speedup, missing = csv.DictReader(
        io.StringIO(figure_csv(spec, figure_frame(spec, {("0.8",): cell})))
    )
    assert [row["theta"] for row in (accuracy, speedup, missing)] == ["0.8", "0.8", "0.9"]
    assert (accuracy["value"], accuracy["n"]) == ("0.5", "4")
    assert float(accuracy["ci_low"]) < 0.5 < float(accuracy["ci_high"])
    assert float(speedup["value"]) == cell.summary.speedup
    assert (missing["state"], missing["value"]) == ("missing", "")
