"""A table says the same in every format, and never a number where there is none."""

from __future__ import annotations

import io
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from results.metrics.catalog import METRICS
from results.metrics.intervals import NORMAL_95
from results.reports.annotations import disagreements, remarks
from results.reports.columns import Column
from results.reports.formats import (
    html,
    long_csv,
    markdown,
    plain_csv,
    render_table,
)
from results.reports.frame import DOUBTED, Table, lay_out, lay_out_all
from results.reports.grid import Conditions, Grid, Outcome, machine, stated
from results.reports.spec import TableSpec
from results.store.errors import printable
from results.store.sample import JudgeSummary, TimingSession
from tests.helpers.synthetic_cells import full_grid, made_up, table_spec, with_values

PUBLISHED = {"file": "mars_table1.csv", "pair": "Model"}
FAILED, MISSING = ("Alpha", "SpS", "GSM8K"), ("Beta", "MARS & co", "mini_code")
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


@pytest.fixture
def spec():
    return table_spec()


@pytest.fixture
def grid(spec):
    return full_grid(spec)


@pytest.fixture
def holed(grid):
    """One cell failed, one was never run, one lost two prompts."""
    grid = {coords: outcome for coords, outcome in grid.items() if coords != MISSING}
    grid[FAILED] = Outcome.failed("out of memory: 2 GiB | 50% used")
    grid["Beta", "SpS", "GSM8K"] = made_up(failed=2)
    return grid


def row(text: str, *labels: str) -> str:
    return next(line for line in text.splitlines() if all(label in line for label in labels))


def line(table: Table, *labels: str, name: str = "speedup") -> pd.Series:
    """The line of a number in the table's frame, by its labels in the order of the axes."""
    axes = list(table.spec.axes)
    frame = table.frame[
        (table.frame[axes] == list(labels)).all(axis=1) & (table.frame["value_name"] == name)
    ]
    return frame.iloc[0]


def read(tables: list[Table]) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(long_csv(tables)))


def test_the_mean_is_only_over_a_full_row(spec, holed, grid):
    table = lay_out(spec, holed)
    assert math.isnan(line(table, "Alpha", "SpS", "Mean").value), "a column failed"
    whole = line(table, "Alpha", "MARS & co", "Mean")
    parts = [grid["Alpha", "MARS & co", task].summary for task in ("GSM8K", "mini_code")]
    assert whole.value == pytest.approx(sum(part.speedup for part in parts) / 2)
    errors = [
        part.speedup * math.log(part.speedup_ci95[1] / part.speedup) / NORMAL_95 for part in parts
    ]
    factor = math.exp(
        NORMAL_95 * math.hypot(*errors) / (2 * whole.value)
    )  # the delta method, on the logarithm
    assert (whole.ci_low, whole.ci_high) == pytest.approx(
        (whole.value / factor, whole.value * factor)
    )


def test_the_best_of_each_group_is_bold_and_a_baseline_never(spec, grid):
    table = lay_out(spec, full_grid(spec, n=12))
    rivals = table.frame[(table.frame["value_name"] == "speedup") & ~table.frame["baseline"]]
    for _, column in rivals.groupby(["Model", "head"]):
        assert column[column["best"]]["value"].tolist() == [column["value"].max()]
    assert not table.frame[table.frame["baseline"]]["best"].any()
    assert "bold: the best of its column" in " ".join(table.caption)
    few = lay_out(table_spec(mean=None), grid)
    assert not few.frame["best"].any() and "bold" not in " ".join(few.caption), (
        "four prompts separate nothing"
    )
    equal = full_grid(spec, n=12)
    for task in ("GSM8K", "mini_code"):
        equal["Beta", "SpS", task] = equal["Beta", "MARS & co", task] = made_up(speedup=2.0, n=12)
    frame = lay_out(spec, equal).frame
    assert not frame[frame["Model"] == "Beta"]["best"].any()


def test_under_accuracy_stands_what_an_answer_costs(grid):
    first, costs = lay_out_all(table_spec(values=["accuracy", "tau"]), grid)
    headers = {column.header for _, column in costs.columns}
    assert costs.stub == ("Task", "Model", "Method") and costs.headers == ("",)
    assert {"Length ratio (×)", "Truncated (%)", "Δ accuracy (pp)"} <= headers
    lines = read([first, costs])
    changes = lines[lines.value_name == "accuracy_change"].dropna(subset="value")
    assert changes.verdict.isna().all() and (changes.interval == "Learned-Miller and Thomas").all()
    assert len(lay_out_all(table_spec(), grid)) == 1


def test_lengths_at_the_limit_are_marked(grid):
    place = ("Alpha", "SpS", "GSM8K")
    grid[place] = with_values(grid[place], baseline_truncated_share=0.25)
    costs = lay_out_all(table_spec(values=["accuracy"]), grid)[1]
    assert costs.notes == ("censored: 25% of the lossless answers end at the length limit",)
    marked = set(costs.frame[costs.frame["marks"] != ()]["value_name"])
    assert {"answer_speedup", "length_ratio", "loop_share"} <= marked
    assert not {name for name in marked if "truncated" in name}


def session(hour: int = 9, **changes) -> Conditions:
    at = TimingSession(f"2026-11-21T0{hour}:00:00", "host", "b1", **changes)
    return replace(HERE, sessions=(at,))


def everything() -> tuple[TableSpec, Grid]:
    """A report of what a table can say, with a cell of each state."""
    axes = table_spec().model_dump()["axes"]
    axes["Method"] = [*axes["Method"], {"label": "PLD", "published": "PLD"}]
    judge = {"metric": "judge_score", "only": {"Task": ["mini_code"]}}
    over = {"metric": "speedup", "label": "over SpS", "over": {"Method": "SpS"}}
    spec = table_spec(
        axes=axes,
        mean=None,
        values=["accuracy", "speedup", over, judge, "win_rate"],
        published=PUBLISHED,
    )
    grid = full_grid(spec)
    for (model, method, task), cell in grid.items():
        metric = "pass@1" if task == "mini_code" else "exact_match"
        here = session() if method == "SpS" else HERE
        grid[model, method, task] = replace(
            cell, summary=replace(cell.summary, metric=metric), conditions=here
        )
    single = JudgeSummary(
        model="own", n=4, replies=8, mode="single", score=7.25, ci95=(7.0, 7.5), unread=1
    )
    pairwise = JudgeSummary(
        model="own",
        n=4,
        replies=8,
        mode="pairwise",
        win_rate=0.5,
        win_first=0.75,
        win_second=0.25,
        ci95=(0.2, 0.8),
        unread=0,
    )
    changes = {
        ("Alpha", "AR", "mini_code"): {"judge": single} | single.metrics(),
        ("Alpha", "SpS", "mini_code"): {"judge": pairwise} | pairwise.metrics(),
        ("Alpha", "MARS & co", "GSM8K"): {"events": {"vacuous_bound": 12, "other": 3}},
        ("Beta", "AR", "GSM8K"): {"events": {"vacuous_bound": 0}},
    }
    grid |= {coords: with_values(grid[coords], **values) for coords, values in changes.items()}
    grid["Beta", "PLD", "GSM8K"] = Outcome.measured(made_up().summary, unjudged="needs a judge")
    grid["Beta", "SpS", "GSM8K"] = made_up(failed=2)
    grid[FAILED] = Outcome.failed("out of memory: 2 GiB | 50% <b>used</b>")
    del grid[MISSING]
    return spec, grid


@pytest.mark.parametrize("suffix", ["md", "tex", "html"])
def test_a_report_in_every_format(suffix: str, tmp_path: Path) -> None:
    """Word for word as it was last read by a person. A change that is meant: LEEWAY_ACCEPT=1 writes
    the file anew, and its difference is read."""
    spec, grid = everything()
    written = render_table(spec, grid, tmp_path)
    assert [path.name for path in written] == ["demo.md", "demo.tex", "demo.csv", "demo.html"]
    kept = Path(__file__).parent / "rendered" / f"demo.{suffix}"
    if "LEEWAY_ACCEPT" in os.environ:
        kept.write_bytes((tmp_path / kept.name).read_bytes())
    assert (tmp_path / kept.name).read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "others", "note", "marked"),
    [
        (
            ["tokens_per_s", "speedup"],
            session(),
            "session 2 (2026-11-21 09:00 on host)",
            {"tokens_per_s"},
        ),
        (
            ["tau", "speedup"],
            session(8, shared=True),
            "timed while other workers may have run",
            {"speedup"},
        ),
        (
            ["tau", "speedup"],
            session(threads=2),
            "timed on 2 threads, other cells on 1 thread",
            {"speedup"},
        ),
    ],
)
def test_clocks_that_do_not_compare_are_marked(grid, values, others, note, marked):
    here = session(8, threads=1) if "threads" in note else HERE
    spec = table_spec(values=values)
    alone = {coords: replace(cell, conditions=here) for coords, cell in grid.items()}
    assert not lay_out(spec, alone).notes
    mixed = {
        coords: replace(cell, conditions=others) if coords[1] == "SpS" else cell
        for coords, cell in alone.items()
    }
    table = lay_out(spec, mixed)
    assert note in " ".join(table.notes)
    cells = table.frame[(table.frame["state"] == "measured") & (table.frame["marks"] != ())]
    assert set(cells["value_name"]) == marked


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


def test_what_the_machine_did_is_said_where_the_clock_has_a_part(grid):
    for i, (coords, cell) in enumerate(grid.items()):
        slower = with_values(cell, baseline_tokens_per_s=100 + 11 * (i % 2))
        grid[coords] = replace(slower, conditions=HERE)
    for value in ("tokens_per_s", "speedup", "answer_speedup_modelled"):
        assert lay_out(table_spec(values=[value]), grid).notes == (
            "the speed of the baseline drifted by 11% within the session",
        )
    assert not lay_out(table_spec(values=["tau"]), grid).notes


def test_published_numbers_stand_beside_the_papers_pair_alone(grid, holed):
    table = lay_out(table_spec(published=PUBLISHED), grid)
    assert [
        [line(table, "Alpha", name, task).published for task in ("GSM8K", "mini_code", "Mean")]
        for name in ("SpS", "MARS & co")
    ] == [[1.46, 1.72, 1.60], [3.74, 4.20, 3.74]]
    others = table.frame[(table.frame["Method"] == "AR") | (table.frame["Model"] == "Beta")]
    assert others["published"].isna().all(), "the paper has no such row"
    first = line(table, *FAILED)
    assert first.difference == pytest.approx(first.value - 1.46)
    missing = line(lay_out(table_spec(published=PUBLISHED), holed), *FAILED)
    assert missing.published == 1.46 and math.isnan(missing.difference)
    values = [{"metric": "accuracy", "published_name": "speedup", "published_scale": 0.01}]
    scaled = lay_out(table_spec(values=values, published=PUBLISHED), grid)
    assert line(scaled, *FAILED, name="accuracy").published == pytest.approx(0.0146)
    assert "paper 1.46 (" in markdown(scaled), "in the unit that is printed"


@pytest.mark.parametrize("order", [("Model", "Task"), ("Model", "Method", "Task")])
def test_a_published_number_keeps_its_digits_its_interval_and_its_place(order):
    """Whichever labels head the columns."""
    labels = {"Model": "Llama-3.1-8B", "Task": "MT-Bench", "Method": "ARC"}
    spec = table_spec(
        axes={name: [{"label": label}] for name, label in labels.items()},
        rows=list(order),
        columns=[name for name in labels if name not in order],
        mean=None,
        values=[{"metric": "coverage", "published_scale": 0.01}],
        published={"file": "arc_table5.csv", "pair": "Model"},
    )
    assert "paper 99.4 [98.7, 99.7]" in markdown(lay_out(spec, {}))


def test_the_csv_says_what_contradicts_a_papers_number():
    axes = table_spec().model_dump()["axes"]
    axes["Method"] = [{"label": name, "published": name} for name in ("PLD", "EAGLE-3")]
    table = lay_out(table_spec(axes=axes, published=PUBLISHED), {})
    assert DOUBTED in html([table]), "in the form for people notes of one kind are one"
    lines = read([table])
    [doubted] = lines[lines.published == 3.12].itertuples()
    assert doubted.printed == 3.12 and "columns have the mean 3.198" in doubted.published_notes


def test_conditions_are_columns_of_the_csv(spec):
    grid = {coords: replace(cell, conditions=HERE) for coords, cell in full_grid(spec).items()}
    first = read([lay_out(spec, grid)]).iloc[0]
    assert (first.pair, first.temperature, first.theta) == ("tiny", 1, 0.9)
    assert first.session == "2026-11-21 08:00 on host"
    axes = {"theta": [{"label": "strict"}, {"label": "θ = 0.8"}]}
    swept = table_spec(axes=axes, rows=["theta"], columns=[], mean=None)
    cell = replace(made_up(), conditions=HERE)
    lines = read([lay_out(swept, {("strict",): cell, ("θ = 0.8",): cell})])
    assert lines.theta.unique().tolist() == ["strict", "θ = 0.8"], "an axis keeps its column"


def test_the_csv_holds_every_value_in_the_summarys_units(spec, holed, grid):
    lines = read([lay_out(spec, holed)])
    assert len(lines) == (12 + 6) * 2, "twelve points and six means, two values each"
    place = ("Beta", "SpS", "mini_code")
    shown = lines[(lines[["Model", "Method", "Task"]] == place).all(axis=1)]
    summary = grid[place].summary
    assert shown.value.tolist() == pytest.approx([summary.speedup, summary.tau])
    assert shown.ci_low.tolist() == pytest.approx([summary.speedup_ci95[0], summary.tau_ci95[0]])
    assert set(shown.n) == {4}
    states = {state: rows for state, rows in lines.groupby("state")}
    assert {state: len(states[state]) for state in ("failed", "missing")} == dict.fromkeys(
        ("failed", "missing"), 2
    )
    assert states["failed"].reason.str.startswith("out of memory").all()
    assert states["failed"].value.isna().all() and states["missing"].value.isna().all()
    assert set(states["mean"].Task) == {"Mean"}


def test_the_csv_says_how_each_interval_is_made(grid):
    for coords, cell in grid.items():
        proportion = coords[2] == "GSM8K"
        grid[coords] = replace(cell, conditions=replace(HERE, proportion=proportion))
    lines = read([lay_out(table_spec(values=["accuracy", "tau"]), grid)]).dropna(subset="interval")
    kinds = lines.groupby(["Task", "value_name"])["interval"].unique().map(list).to_dict()
    student, averaged = (
        ["Student's t over prompts"],
        ["from the standard errors of the averaged columns"],
    )
    assert kinds == {
        ("GSM8K", "accuracy"): ["Wilson"],
        ("GSM8K", "tau"): student,
        ("mini_code", "accuracy"): student,
        ("mini_code", "tau"): student,
        ("Mean", "accuracy"): averaged,
        ("Mean", "tau"): averaged,
    }


def test_rows_that_the_report_does_not_ask_for_are_not_there():
    axes = table_spec().model_dump()["axes"]
    axes["Model"][1]["only"] = {"Method": ("AR", "SpS"), "Task": ("GSM8K",)}
    spec = table_spec(axes=axes)
    table = lay_out(spec, full_grid(spec))
    assert set(table.frame[table.frame["Model"] == "Beta"]["stub"]) == {
        ("Beta", "AR"),
        ("Beta", "SpS"),
    }
    assert "missing" not in markdown(table) and line(table, "Beta", "SpS", "Mean").value > 0
    axes["Model"] = axes["Model"][:1]
    single = table_spec(axes=axes)
    table = lay_out(single, full_grid(single))
    assert table.stub == ("Method",) and table.caption[0].startswith("Alpha; n = 4")


def test_rows_without_a_common_column_are_tables_of_their_own() -> None:
    axes = {
        "Method": [{"label": "SD"}, {"label": "Judge"}, {"label": "Judge + DM"}],
        "Threshold": [
            {"label": "none", "only": {"Method": ["SD"]}},
            {"label": "0.1", "only": {"Method": ["Judge", "Judge + DM"]}},
            {"label": "0.2", "only": {"Method": ["Judge"]}},
        ],
    }
    over = {
        "metric": "tau",
        "label": "over",
        "over": {"Method": "Judge"},
        "only": {"Method": ["Judge + DM"]},
    }
    spec = table_spec(
        axes=axes, rows=["Method"], columns=["Threshold"], values=["speedup", over], mean=None
    )
    grid = {place: replace(held, notes=("noted",)) for place, held in full_grid(spec).items()}
    first, second = lay_out_all(spec, grid)
    assert [set(table.frame["Method"]) for table in (first, second)] == [
        {"SD"},
        {"Judge", "Judge + DM"},
    ]
    assert [second.headers[head] for head in second.under] == ["Threshold 0.1", "Threshold 0.2"]
    assert [table.widest for table in (first, second)] == [1, 2], "no empty columns"
    assert not first.caption and second.caption
    assert "noted" in long_csv([first, second]).splitlines()[1]


def test_a_column_of_some_cells_alone():
    values = [
        {"metric": "accuracy", "only": {"Task": ["mini_code"]}},
        {"metric": "judge_score", "only": {"Task": ["GSM8K"]}},
        {"metric": "tau", "only": {"Method": ["SpS", "MARS & co"]}},
    ]
    spec = table_spec(mean=None, values=values)
    table = lay_out(spec, full_grid(spec))
    heads = [part.strip() for part in row(markdown(table), "GSM8K").strip("|").split("|")]
    assert heads == [
        "Model",
        "Method",
        "GSM8K · Judge",
        "GSM8K · τ",
        "mini_code · Accuracy (%)",
        "mini_code · τ",
    ]
    assert "tau" not in set(table.frame[table.frame["Method"] == "AR"]["value_name"])


def test_a_ratio_and_a_difference_stand_with_what_they_are_relative_to():
    spec = table_spec(
        mean=None,
        values=[
            {"metric": "speedup", "label": "over SpS", "over": {"Method": "SpS"}},
            {"metric": "tokens_per_s", "label": "gain", "minus": {"Method": "SpS"}},
        ],
    )
    grid = full_grid(spec)
    table = lay_out(spec, grid)
    mars, sps = (grid["Alpha", name, "GSM8K"].summary for name in ("MARS & co", "SpS"))
    place = ("Alpha", "MARS & co", "GSM8K")
    ratio, gain = (
        line(table, *place, name=name) for name in ("speedup_over", "tokens_per_s_minus")
    )
    assert ratio.value == pytest.approx(mars.speedup / sps.speedup)
    assert ratio.ci_low <= ratio.value <= ratio.ci_high
    assert gain.value == pytest.approx(mars.tokens_per_s - sps.tokens_per_s)
    own = row(markdown(table), "| SpS")
    assert "1.00" in own and "+0.0" in own and "[" not in own, "the reference itself"
    del grid[FAILED]
    assert "no over: SpS was not measured on the same prompts" in markdown(lay_out(spec, grid))


def test_zero_has_no_minus() -> None:
    """What rounds to nothing is printed as +0.00 where signs are printed."""
    column = Column.model_validate("tau_gain")
    assert (column.text(-0.0004), column.interval_text((-0.01, -0.0))) == (
        "+0.00",
        "[−0.01, +0.00]",
    )


def test_every_format_escapes_what_it_must(spec, holed, tmp_path):
    holed[FAILED] = Outcome.failed("<script>alert(1)</script> p < 0.05 & a <!-- b &lt;i>")
    table = lay_out(spec, holed)
    assert "<script>" not in html([table]) and "&lt;script&gt;" in html([table])
    assert not re.search(r"<[A-Za-z/!]", markdown(table)) and "p < 0.05 & a" in markdown(table)
    titled = spec.model_copy(update={"title": "Table\x1b[2J\u202e\x9b"})
    for path in render_table(titled, holed, tmp_path):
        written = path.read_text(encoding="utf-8")
        assert printable(written) == written, path.suffix


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


def test_a_speedup_that_all_prompts_do_not_bear_out_has_a_footnote():
    cell = made_up().summary.with_values(
        repeatable=0.75,
        speedup_ci95=(1.9, 2.1),
        speedup_modelled=1.5,
        speedup_modelled_ci95=(1.4, 1.8),
    )
    [other] = remarks(cell, with_speed=True)
    assert "25% of 4 timed prompts have other tokens" in other
    assert remarks(cell, with_speed=False) == remarks(made_up().summary, with_speed=True) == []
    [modelled] = disagreements(cell, "speedup")
    assert "over all 4 prompts, 1.50× [1.40, 1.80]" in modelled and disagreements(cell, "tau") == []
    assert disagreements(cell.with_values(speedup_modelled_ci95=(1.4, 1.95)), "speedup") == []
    [unlike] = disagreements(made_up().summary.with_values(timed_tau=9.0), "answer_speedup")
    assert "its 4 timed prompts have τ 9.00, outside the interval of all 4" in unlike


def test_two_timed_prompts_have_no_interval_and_say_so():
    spec = table_spec(mean="Mean", values=["speedup"])
    said = "timed too few for an interval: give at least timed=3"
    few, enough = (lay_out(spec, full_grid(spec, n=n)) for n in (2, 3))
    assert line(few, "Alpha", "SpS", "GSM8K").notes == said and few.frame["ci_low"].isna().all()
    assert said not in markdown(enough) and line(enough, "Alpha", "SpS", "Mean").ci_low > 0


def test_a_unit_has_its_decimals():
    """Also of metrics that no table here shows."""
    digits = {"×": 2, "%": 1, "tok/s": 1, "ms": 2, "pp": 1}
    others = {"repeatable": 0, "efficiency_at_d": 0} | {f"majority_{k}": 2 for k in range(1, 6)}
    found = {name: one.digits for name, one in METRICS.items() if one.unit}
    assert found == {name: others.get(name, digits[METRICS[name].unit]) for name in found}
