"""A table says the same in every format, and never a number where there is none; the form for people
has few columns, short names, and ± only where it is true."""

from __future__ import annotations

import io
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from results.metrics.catalog import METRICS
from results.metrics.delta import Estimate
from results.metrics.verdict import Judged
from results.reports.annotations import Note
from results.reports.columns import Column
from results.reports.formats import long_csv, markdown, plain_csv, render_table
from results.reports.frame import lay_out
from results.reports.grid import Conditions, Grid, Outcome, machine, stated
from results.reports.spec import TableSpec
from results.store.errors import printable
from results.store.sample import JudgeSummary, TimingSession
from tests.helpers.synthetic_cells import (
    choice_spec,
    full_grid,
    made_up,
    table_spec,
    with_values,
)

FAILED = "Alpha", "SpS", "GSM8K"


HERE = Conditions(
    "tiny",
    1.0,
    0,
    1,
    0.9,
    "A processor, 1 thread",
    "2026-11-21",
    "sha256:0123456789abcdef",
    "ar",
    (TimingSession("2026-11-21T08:00:00", "host", "b1"),),
)


FOLDER = Path(__file__).parent
MADE_UP = yaml.safe_load((FOLDER / "made_up.yaml").read_text(encoding="utf-8"))
"""Name of a report -> what it changes in the made-up table."""


def session(hour: int = 9, **changes) -> Conditions:
    at = TimingSession(f"2026-11-21T0{hour}:00:00", "host", "b1", **changes)
    return replace(HERE, sessions=(at,))


def demo() -> tuple[TableSpec, Grid]:
    """What a table can say, with a cell of each state."""
    spec = table_spec(**MADE_UP["demo"])
    grid = full_grid(spec)
    for (model, method, task), cell in grid.items():
        metric = "pass@1" if task == "mini_code" else "exact_match"
        here = session() if method == "SpS" else HERE
        grid[model, method, task] = replace(
            cell,
            summary=replace(cell.summary, metric=metric),
            conditions=replace(here, proportion=task == "GSM8K"),
        )
    for labels, values in MADE_UP["cells of demo"].items():
        coords, said = tuple(labels.split(", ")), {}
        if "judge" in values:
            judge = JudgeSummary.model_validate(values["judge"])
            said = judge.metrics() | {"judge": judge}
        grid[coords] = with_values(grid[coords], **values | said)
    grid["Beta", "PLD", "GSM8K"] = Outcome.measured(made_up().summary, unjudged="needs a judge")
    grid["Beta", "PLD", "mini_code"] = made_up(n=2)
    grid["Beta", "SpS", "GSM8K"] = made_up(failed=2)
    grid[FAILED] = Outcome.failed("<!-- 2 GiB | 50% <b>used</b> &lt;i> p < 0.05")
    del grid["Beta", "MARS & co", "mini_code"]
    return spec, grid


def clocks() -> tuple[TableSpec, Grid]:
    """One model, its cells timed in ways that do not compare; with means, and with enough prompts
    for bold. Two columns are one another's."""
    spec = table_spec(**MADE_UP["clocks"])
    here = {"AR": session(8, threads=1), "MARS & co": session(8, threads=2)}
    grid = {}
    for number, (coords, cell) in enumerate(full_grid(spec, n=12).items()):
        drifted = with_values(cell, baseline_tokens_per_s=100 + 11 * (number % 2))
        conditions = here.get(coords[1], session(8, shared=True))
        grid[coords] = replace(drifted, conditions=conditions)
    grid[FAILED] = Outcome.failed("out of memory")
    return spec, grid


def wide() -> tuple[TableSpec, Grid]:
    """More columns than people read, a short name, and notes that most cells share."""
    spec = table_spec(**MADE_UP["wide"])
    grid = full_grid(spec)
    for number, coords in enumerate(grid):
        cell = grid[coords]
        if number in (1, 2):
            cell = with_values(cell, timed_tau=90.0 + number)
        notes = (Note(f"took {number}", "Settings taken", f"K = {number}"), "same everywhere")
        grid[coords] = replace(cell, notes=notes[number < 2 :])
    grid["Alpha", "MARS & co", "GSM8K"] = made_up(failed=2)
    return spec, grid


def parts() -> tuple[TableSpec, Grid]:
    """Rows without a common column, and columns of some cells alone."""
    spec = table_spec(**MADE_UP["parts"])
    return spec, {place: replace(cell, notes=("noted",)) for place, cell in full_grid(spec).items()}


def metrics() -> tuple[TableSpec, Grid]:
    """Every metric, with its unit and decimals."""
    spec = table_spec(**MADE_UP["metrics"], values=[*METRICS])
    known = {name: 0.123456 for name in METRICS}
    known |= {f"{name}_ci95": (0.1, 0.2) for name in METRICS}
    return spec, {("every",): with_values(made_up(n=12), **known)}


def choice() -> tuple[TableSpec, Grid]:
    """Rows that chose their setting, two of them gains, and a baseline, which is not judged."""
    plain = {"label": "plain", "overrides": ["rule=ears"], "baseline": True}
    axes = choice_spec().model_dump()["axes"]
    spec = choice_spec(axes=axes | {"Rule": [*axes["Rule"], plain]})
    gain = {
        "equal_d_distortion": 0.1,
        "equal_d_speed": 1.2,
        "equal_d_answer": 1.2,
        "equal_d_length": 1.0,
        "equal_d_temperature": 0.5,
        "judged": Judged(speed=Estimate(1.2, 0.01, 60.0), beyond=0.0, n=64),
    }
    noted = replace(made_up(), notes=("standard, K = 3",))
    rows = {(rule,): with_values(noted, **gain) for rule in ("lossy", "ears", "plain")}
    return spec, full_grid(spec) | rows | {("best lossless",): noted}


REPORTS = {report.__name__: report for report in (demo, clocks, wide, parts, metrics, choice)}


@pytest.mark.parametrize(
    "kept", sorted((FOLDER / "rendered").iterdir()), ids=lambda path: path.name
)
def test_a_report_in_every_format(kept: Path, tmp_path: Path) -> None:
    """Word for word as it was last read by a person, to six digits. A change that is meant:
    LEEWAY_ACCEPT=1 writes the file anew, and its difference is read."""
    spec, grid = REPORTS[kept.stem]()
    written = render_table(spec, grid, tmp_path)
    assert [path.name for path in written] == ["demo.md", "demo.tex", "demo.csv", "demo.html"]
    text = (tmp_path / f"demo{kept.suffix}").read_text(encoding="utf-8")
    text = re.sub(r"\d+\.\d{7,}(e-\d+)?", lambda number: f"{float(number[0]):.6g}", text)
    if "LEEWAY_ACCEPT" in os.environ:
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8")
    assert printable(text) == text


def test_the_mean_of_a_row_is_that_of_its_columns() -> None:
    """Its interval by the delta method, on the logarithm."""
    spec = table_spec()
    grid = full_grid(spec)
    frame = lay_out(spec, grid).frame.set_index(["Model", "Method", "Task", "value_name"])
    mean = frame.loc["Alpha", "MARS & co", "Mean", "speedup"]
    cells = [grid["Alpha", "MARS & co", task].summary for task in ("GSM8K", "mini_code")]
    assert mean.value == pytest.approx(sum(cell.speedup for cell in cells) / 2)
    errors = [cell.speedup * math.log(cell.speedup_ci95[1] / cell.speedup) for cell in cells]
    factor = math.exp(math.hypot(*errors) / (2 * mean.value))
    ends = mean.value / factor, mean.value * factor
    assert (mean.ci_low, mean.ci_high) == pytest.approx(ends)


@pytest.mark.parametrize(
    ("accelerator", "threads", "text"),
    [
        (None, [1, 1], "EPYC, 1 thread"),
        (None, [2, 0, 1], "EPYC, 1 thread and 2 threads"),
        ({"name": "H200", "count": 2}, [4], "2 × H200"),
    ],
)
def test_the_machine_has_the_threads_of_the_clock(accelerator, threads, text: str):
    environment = {"cpu": {"model": "EPYC", "threads": 2}, "accelerator": accelerator}
    assert machine(environment, threads) == text


def test_a_machine_without_a_clock_is_not_named_twice():
    machines = ("AMD", "AMD, 2 threads", "Xeon")
    assert "AMD, 2 threads, Xeon" in stated([replace(HERE, machine=name) for name in machines])


@pytest.mark.parametrize("rows", [["Model", "Task"], ["Model", "Method", "Task"]])
def test_a_published_number_keeps_its_digits_its_interval_and_its_place(rows):
    """Whichever labels head the columns."""
    columns = [] if "Method" in rows else ["Method"]
    spec = table_spec(**MADE_UP["published"], rows=rows, columns=columns)
    assert "paper 99.4 [98.7, 99.7]" in markdown(lay_out(spec, {}))


def test_a_text_in_csv_is_no_formula_and_a_number_stays_a_number() -> None:
    formulas = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "\rx"]
    texts = [*formulas, "fine", "-0.5", "+1e-3", "<script>"]
    numbers = [-0.5, 1e-300, -1e17, 3.0, *range(6)]
    text = plain_csv(pd.DataFrame({"reason": texts, "value": numbers}))
    frame = pd.read_csv(
        io.StringIO(text),
        keep_default_na=False,
        float_precision="round_trip",
        lineterminator="\n",
        dtype={"reason": str},
    )
    assert frame["value"].tolist() == numbers
    for reason, kept in zip(texts, frame["reason"], strict=True):
        assert kept.lstrip("'").strip() == reason.strip()
        assert kept.startswith("'") == (reason in formulas)


def test_an_axis_keeps_its_column() -> None:
    """The conditions are columns too, and one is named like an axis."""
    swept = {"theta": [{"label": "strict"}, {"label": "θ = 0.8"}]}
    spec = table_spec(axes=swept, rows=["theta"], columns=[], mean=None)
    cell = replace(made_up(), conditions=HERE)
    table = lay_out(spec, {("strict",): cell, ("θ = 0.8",): cell})
    lines = pd.read_csv(io.StringIO(long_csv([table])))
    assert lines["theta"].unique().tolist() == ["strict", "θ = 0.8"]


@pytest.mark.parametrize(
    ("metric", "value", "interval", "text"),
    [
        ("tau", 3.84, (3.73, 3.95), "3.84 ± 0.11"),
        ("tau", 3.84, (3.72, 3.95), "3.84 ± 0.12"),
        ("tau", 1.19, (1.08, 1.34), "1.19 [1.08, 1.34]"),
        ("tau_gain", -0.0004, (-0.04, -0.0), "+0.00 [−0.04, +0.00]"),  # no minus
    ],
)
def test_half_an_interval_stands_only_for_a_symmetric_one(metric, value, interval, text) -> None:
    column = Column.model_validate(metric)
    assert f"{column.text(value)} {column.short_interval_text(value, interval)}" == text
