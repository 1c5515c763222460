"""One number has one value, in every file of a set of reports."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from results.reports.formats import figure_csv
from results.reports.frame import figure_frame
from results.reports.spec import FigureSpec
from tests.helpers.consistency import contradictions
from tests.helpers.synthetic_cells import made_up

MEASURED = Path(__file__).parents[2] / "results" / "measured" / "embedded_cpu"
def test_committed_files_do_not_contradict_each_other() -> None:
    assert contradictions(sorted(MEASURED.glob("*.csv"))) == []


def test_numbers_behind_a_figure() -> None:
    axis = {"override": "rule.theta={}", "values": [0.8, 0.9]}
    spec = FigureSpec.model_validate({
        "name": "own", "title": "Own", "kind": "figure", "axes": {"theta": axis},
        "figure": {"kind": "sweep", "x": "theta", "left": "accuracy", "right": "speedup"}})
    frame = figure_frame(spec, {("0.8",): made_up(speedup=1.5, right=2)})
    rows = list(csv.DictReader(io.StringIO(figure_csv(spec, frame))))
    assert [row["theta"] for row in rows] == ["0.8", "0.8", "0.9"]
    numbers = {row["value_name"]: float(row["value"]) for row in rows[:2]}
    assert numbers["accuracy"] == 0.5 and numbers["speedup"] == pytest.approx(1.5, rel=0.1)
    assert float(rows[0]["ci_low"]) < 0.5 < float(rows[0]["ci_high"]) and rows[0]["n"] == "4"
    assert rows[2]["state"] == "missing" and rows[2]["value"] == ""
