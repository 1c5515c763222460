"""A table says the same in every format, and never a number where there is none; the form for people
has few columns, short names, and ± only where it is true."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from results.metrics.catalog import METRICS
from results.metrics.delta import Estimate
from results.metrics.intervals import NORMAL_95
from results.metrics.verdict import Judged
from results.reports.annotations import Note
from results.reports.columns import Column
from results.reports.formats import long_csv, markdown, plain_csv, render_table
from results.reports.frame import lay_out, lay_out_all
from results.reports.grid import Conditions, Grid, Outcome, machine, stated
from results.reports.reading import MOST_COLUMNS, for_people
from results.reports.spec import TableSpec, parse_report
from results.store.errors import printable
from results.store.sample import JudgeSummary, TimingSession
from tests.helpers.synthetic_cells import (
    choice_spec,
    full_grid,
    made_up,
    table_spec,
    with_values,
)

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


def axes(**changes: list) -> dict[str, list]:
    """The axes of the made-up table, some of them others."""
    return {name: list(entries) for name, entries in table_spec().model_dump()["axes"].items()} | (
        changes
    )


def session(hour: int = 9, **changes) -> Conditions:
    at = TimingSession(f"2026-11-21T0{hour}:00:00", "host", "b1", **changes)
    return replace(HERE, sessions=(at,))


def demo() -> tuple[TableSpec, Grid]:
    """What a table can say, with a cell of each state."""
    methods = [*axes()["Method"], {"label": "PLD", "published": "PLD"}]
    spec = table_spec(
        title="A demo <script>\x1b[2J\u202e",
        axes=axes(Method=methods),
        mean=None,
        values=[
            "accuracy",
            "speedup",
            {"metric": "speedup", "label": "over SpS", "over": {"Method": "SpS"}},
            {"metric": "tokens_per_s", "label": "gain", "minus": {"Method": "SpS"}},
            {"metric": "judge_score", "only": {"Task": ["mini_code"]}},
            "win_rate",
        ],
        published=PUBLISHED,
    )
    grid = full_grid(spec)
    for (model, method, task), cell in grid.items():
        metric = "pass@1" if task == "mini_code" else "exact_match"
        here = session() if method == "SpS" else HERE
        grid[model, method, task] = replace(
            cell,
            summary=replace(cell.summary, metric=metric),
            conditions=replace(here, proportion=task == "GSM8K"),
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
    apart = {"speedup_ci95": (1.9, 2.1), "speedup_modelled": 1.5}
    changes = {
        ("Alpha", "AR", "mini_code"): {"judge": single} | single.metrics(),
        ("Alpha", "SpS", "mini_code"): {"judge": pairwise} | pairwise.metrics(),
        ("Alpha", "MARS & co", "GSM8K"): {"events": {"vacuous_bound": 12, "other": 3}},
        ("Beta", "AR", "GSM8K"): {"events": {"vacuous_bound": 0}},
        ("Alpha", "PLD", "GSM8K"): {"baseline_truncated_share": 0.25, "timed_tau": 9.0},
        ("Alpha", "PLD", "mini_code"): apart
        | {"speedup_modelled_ci95": (1.4, 1.8), "repeatable": 0.75},
        ("Alpha", "MARS & co", "mini_code"): apart | {"speedup_modelled_ci95": (1.4, 1.95)},
    }
    grid |= {coords: with_values(grid[coords], **values) for coords, values in changes.items()}
    grid["Beta", "PLD", "GSM8K"] = Outcome.measured(made_up().summary, unjudged="needs a judge")
    grid["Beta", "PLD", "mini_code"] = made_up(n=2)
    grid["Beta", "SpS", "GSM8K"] = made_up(failed=2)
    grid[FAILED] = Outcome.failed("<!-- 2 GiB | 50% <b>used</b> &lt;i> p < 0.05")
    del grid[MISSING]
    return spec, grid


def clocks() -> tuple[TableSpec, Grid]:
    """One model, its cells timed in ways that do not compare; with means, and with enough prompts
    for bold. Two columns are one another's."""
    values = ["tokens_per_s", "speedup", "answer_speedup_modelled", "tau"]
    spec = table_spec(axes=axes(Model=axes()["Model"][:1]), values=values)
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
    given = axes()
    given["Method"][1] |= {"label": "speculative sampling", "short": "SpS"}
    given["Model"][1]["only"] = {"Method": ("AR",), "Task": ("GSM8K",)}
    spec = table_spec(
        axes=given,
        rows=["Model", "Task", "Method"],
        columns=[],
        mean=None,
        values=["tau", "speedup", "accuracy", "nll", "accept_len", "tokens_per_s", "tau_gain"],
        reading=["accuracy", "tau"],
    )
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
    judged = ["Judge", "Judge + DM"]
    given = {
        "Method": [{"label": "SD"}, *({"label": label} for label in judged)],
        "Threshold": [
            {"label": "none", "only": {"Method": ["SD"]}},
            {"label": "0.1", "only": {"Method": judged}},
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
        axes=given, rows=["Method"], columns=["Threshold"], values=["speedup", over], mean=None
    )
    return spec, {place: replace(cell, notes=("noted",)) for place, cell in full_grid(spec).items()}


def metrics() -> tuple[TableSpec, Grid]:
    """Every metric, with its unit and decimals."""
    spec = table_spec(
        axes={"Model": [{"label": "every"}, {"label": "none"}]},
        rows=["Model"],
        columns=[],
        mean=None,
        values=[*METRICS],
    )
    known = {name: 0.123456 for name in METRICS}
    known |= {f"{name}_ci95": (0.1, 0.2) for name in METRICS}
    return spec, {("every",): with_values(made_up(n=12), **known)}


def choice() -> tuple[TableSpec, Grid]:
    """Rows that chose their setting, two of them gains, and a baseline, which is not judged."""
    spec = choice_spec()
    *rules, ears = spec.axes["Rule"]
    plain = ears.model_copy(update={"label": "plain", "baseline": True})
    spec = spec.model_copy(update={"axes": spec.axes | {"Rule": (*rules, ears, plain)}})
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


KEPT: list[tuple[Callable[[], tuple[TableSpec, Grid]], str]] = [
    *((demo, suffix) for suffix in ("md", "tex", "html", "csv")),
    *((clocks, suffix) for suffix in ("md", "tex", "csv")),
    *((wide, suffix) for suffix in ("md", "tex", "html")),
    (parts, "md"),
    (parts, "csv"),
    (metrics, "tex"),
    (choice, "md"),
    (choice, "csv"),
]


@pytest.mark.parametrize(
    ("report", "suffix"), KEPT, ids=lambda part: getattr(part, "__name__", part)
)
def test_a_report_in_every_format(
    report: Callable[[], tuple[TableSpec, Grid]], suffix: str, tmp_path: Path
) -> None:
    """Word for word as it was last read by a person, to six digits. A change that is meant:
    LEEWAY_ACCEPT=1 writes the file anew, and its difference is read."""
    spec, grid = report()
    written = render_table(spec, grid, tmp_path)
    assert [path.name for path in written] == ["demo.md", "demo.tex", "demo.csv", "demo.html"]
    text = (tmp_path / f"demo.{suffix}").read_text(encoding="utf-8")
    text = re.sub(r"\d+\.\d{7,}(e-\d+)?", lambda number: f"{float(number[0]):.6g}", text)
    kept = Path(__file__).parent / "rendered" / f"{report.__name__}.{suffix}"
    if "LEEWAY_ACCEPT" in os.environ:
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8")
    assert printable(text) == text


def test_the_mean_is_only_over_a_full_row() -> None:
    """By the delta method, on the logarithm."""
    spec = table_spec()
    grid = full_grid(spec)
    frame = lay_out(spec, grid | {FAILED: Outcome.failed("why")}).frame
    means = frame[(frame["Task"] == "Mean") & (frame["value_name"] == "speedup")]
    means = means.set_index(["Model", "Method"])
    assert math.isnan(means.loc["Alpha", "SpS"].value), "a column failed"
    whole = means.loc["Alpha", "MARS & co"]
    summaries = [grid["Alpha", "MARS & co", task].summary for task in ("GSM8K", "mini_code")]
    assert whole.value == pytest.approx(sum(summary.speedup for summary in summaries) / 2)
    errors = [
        summary.speedup * math.log(summary.speedup_ci95[1] / summary.speedup) / NORMAL_95
        for summary in summaries
    ]
    factor = math.exp(NORMAL_95 * math.hypot(*errors) / (2 * whole.value))
    ends = whole.value / factor, whole.value * factor
    assert (whole.ci_low, whole.ci_high) == pytest.approx(ends)


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


def test_zero_has_no_minus() -> None:
    """What rounds to nothing is printed as +0.00 where signs are printed."""
    column = Column.model_validate("tau_gain")
    assert (column.text(-0.0004), column.interval_text((-0.01, -0.0))) == (
        "+0.00",
        "[−0.01, +0.00]",
    )


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


CONF = Path(__file__).parents[2] / "conf" / "report"


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (3.84, (3.73, 3.95), "± 0.11"),
        (3.84, (3.72, 3.95), "± 0.12"),
        (1.19, (1.08, 1.34), "[1.08, 1.34]"),
        (0.0, (0.0, 0.0), ""),
        (-0.79, (-1.07, -0.51), "± 0.28"),
        (2.0, None, ""),
    ],
)
def test_half_an_interval_stands_only_for_a_symmetric_one(value, interval, text) -> None:
    column = Column.model_validate("tau_gain" if value < 0 else "tau")
    assert column.short_interval_text(value, interval) == text
    assert value > 0 or column.half_width(value, interval) is None, "near 0 the ratio says nothing"


def test_every_shipped_table_fits_and_has_short_names() -> None:
    sections = [yaml.safe_load(path.read_text()) for path in sorted(CONF.glob("*.yaml"))]
    specs = [parse_report(section) for section in sections if "defaults" not in section]
    for spec in (spec for spec in specs if isinstance(spec, TableSpec)):
        embedded = spec.edition() if spec.has_edition((), "embedded") else spec
        for short in for_people(lay_out_all(embedded, {})):
            numbers = len(short.columns)
            fits = len(short.stub) + numbers <= MOST_COLUMNS
            assert fits or numbers == 1 or short.spec.published, (spec.name, short.spec.name)
            long = [
                entry.label
                for axis in spec.rows
                for entry in spec.axes[axis]
                if len(entry.short or entry.label) > 32
            ]
            assert not long, (
                f"report={spec.name}: a row needs a `short` name of up to 32 characters: {long}"
            )


def test_only_values_of_the_table_can_be_read() -> None:
    with pytest.raises(ValueError, match="reading: win_rate: none of the values"):
        table_spec(reading=["win_rate"])
