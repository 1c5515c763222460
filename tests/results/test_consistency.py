"""One number has one value, in every file of a set of reports."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from results.reports.formats import render_data
from results.reports.spec import FigureSpec
from tests.helpers.consistency import contradictions
from tests.helpers.synthetic_cells import made_up

MEASURED = Path(__file__).parents[2] / "results" / "measured" / "embedded_cpu"
ROW = {"cell": "tiny-sps-1", "seed": 0, "n": 64, "value_name": "tau", "value": 5.4, "ci_low": 5.2, "ci_high": 5.6}


def write(folder: Path, **files: list[dict]) -> list[Path]:
    for name, rows in files.items():
        pd.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False)
    return sorted(folder.glob("*.csv"))


def test_committed_files_do_not_contradict_each_other() -> None:
    assert contradictions(sorted(MEASURED.glob("*.csv"))) == []


@pytest.mark.parametrize(("change", "faults"), [
    ({}, 0), ({"value": 5.5}, 1), ({"ci_low": 5.1}, 1), ({"ci_low": None}, 1), ({"n": 128, "value": 5.5}, 0),
    ({"cell": "tiny-sps-2", "value": 5.5}, 0), ({"value_name": "speedup", "value": 5.5}, 0),
    ({"seed": 1, "value": 5.5}, 0), ({"value": None, "ci_low": None, "ci_high": None}, 0),
])
def test_one_number_has_one_value(tmp_path: Path, change: dict, faults: int) -> None:
    found = contradictions(write(tmp_path, first=[ROW], second=[{**ROW, **change}]))
    assert len(found) == faults
    assert all("tau of tiny-sps-1, n = 64: 5.4 in first.csv, " in str(fault) and "second.csv" in str(fault)
               and fault.files == {"first.csv", "second.csv"} for fault in found)


def test_a_comparison_with_the_best_row_belongs_to_its_table(tmp_path: Path) -> None:
    row = {**ROW, "value_name": "over_best_tau"}
    assert contradictions(write(tmp_path, first=[row], second=[{**row, "value": 5.5}])) == []
    assert len(contradictions(write(tmp_path, first=[row, {**row, "value": 5.5}]))) == 1


def test_files_without_cells_are_left_out(tmp_path: Path) -> None:
    assert contradictions(write(tmp_path, first=[{"value": 1}], second=[{"z1": 3.5}])) == []


def test_numbers_behind_a_figure(tmp_path: Path) -> None:
    axis = {"override": "rule.theta={}", "values": [0.8, 0.9]}
    spec = FigureSpec.model_validate({
        "name": "own", "title": "Own", "kind": "figure", "axes": {"theta": axis},
        "figure": {"kind": "sweep", "x": "theta", "left": "accuracy", "right": "speedup"}})
    [path] = render_data(spec, {("0.8",): made_up(speedup=1.5, right=2)}, tmp_path)
    rows = list(csv.DictReader(path.open()))
    assert path.name == "own.csv" and [row["theta"] for row in rows] == ["0.8", "0.8", "0.9"]
    numbers = {row["value_name"]: float(row["value"]) for row in rows[:2]}
    assert numbers["accuracy"] == 0.5 and numbers["speedup"] == pytest.approx(1.5, rel=0.1)
    assert float(rows[0]["ci_low"]) < 0.5 < float(rows[0]["ci_high"]) and rows[0]["n"] == "4"
    assert rows[2]["state"] == "missing" and rows[2]["value"] == ""
