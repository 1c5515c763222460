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

from plots.render import DATA
from results.reports.formats import figure_csv
from results.reports.frame import figure_frame
from results.reports.spec import FigureSpec
from tests.helpers.consistency import contradictions
from tests.helpers.pictures import content
from tests.helpers.synthetic_cells import made_up

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "results" / "measured"
LINE = re.compile(
    r"- \[[^]]+\]\((?P<shown>\S+)\): \[numbers\]\((?P<numbers>\w+\.csv(\.gz)?)\), \[environment\]"
    r"\((?P<environment>\S+)\), `(?P<command>[^`]+)`"
)
REPORTS = {
    f"{listing.parent.name}/{found['numbers']}": (listing.parent, found)
    for listing in sorted(MEASURED.glob("*/TABLES.md"))
    for found in LINE.finditer(listing.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_names_its_own_command(report: str) -> None:
    folder, found = REPORTS[report]
    assert (folder / found["shown"]).exists() and (folder / found["numbers"]).exists()
    assert (
        json.loads((folder / found["environment"]).read_text(encoding="utf-8"))["command"]
        == found["command"]
    )


def test_every_committed_picture_shows_its_committed_numbers() -> None:
    pictures = sorted({*MEASURED.rglob("*.png"), *(ROOT / "docs").rglob("*.png")})
    assert len(pictures) > 20
    for picture in pictures:
        with Image.open(picture) as image:
            shown = image.info.get(DATA)
        assert shown == hashlib.sha256(content(picture.with_suffix(".csv"))).hexdigest(), (
            f"{picture}: run `make pictures`"
        )


def test_committed_files_do_not_contradict_each_other() -> None:
    assert contradictions(sorted((MEASURED / "embedded_cpu").glob("*.csv"))) == []


def test_numbers_behind_a_figure() -> None:
    axis = {"override": "rule.theta={}", "values": [0.8, 0.9]}
    spec = FigureSpec.model_validate(
        {
            "name": "own",
            "title": "Own",
            "kind": "figure",
            "axes": {"theta": axis},
            "figure": {"kind": "sweep", "x": "theta", "left": "accuracy", "right": "speedup"},
        }
    )
    frame = figure_frame(spec, {("0.8",): made_up(speedup=1.5, right=2)})
    rows = list(csv.DictReader(io.StringIO(figure_csv(spec, frame))))
    assert [row["theta"] for row in rows] == ["0.8", "0.8", "0.9"]
    numbers = {row["value_name"]: float(row["value"]) for row in rows[:2]}
    assert numbers["accuracy"] == 0.5 and numbers["speedup"] == pytest.approx(1.5, rel=0.1)
    assert float(rows[0]["ci_low"]) < 0.5 < float(rows[0]["ci_high"]) and rows[0]["n"] == "4"
    assert rows[2]["state"] == "missing" and rows[2]["value"] == ""
