"""A table says the same in every format, and never a number where there is none."""

import dataclasses
import io
import math
import re
from dataclasses import replace

import pandas as pd
import pytest

from results.metrics.intervals import NORMAL_95
from results.reports.annotations import disagreements
from results.reports.conditions import Conditions, TimingSession, machine
from results.reports.formats import SUPERSCRIPTS, html, latex, long_csv, markdown, render_table
from results.reports.grid import Outcome
from results.reports.layout import DOUBTED, lay_out, lay_out_all, remarks
from results.store.errors import printable
from tests.helpers.synthetic_cells import full_grid, made_up, table_spec

PUBLISHED = {"file": "mars_table1.csv", "pair": "Model"}
FAILED, MISSING = ("Alpha", "SpS", "GSM8K"), ("Beta", "MARS & co", "mini_code")


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


def test_files_of_every_format(spec, holed, tmp_path):
    paths = render_table(spec, holed, tmp_path / "new")
    assert [path.name for path in paths] == ["demo.md", "demo.tex", "demo.csv", "demo.json", "demo.html"]
    assert all(path.stat().st_size > 500 for path in paths)


def test_numbers_stand_with_their_interval(spec, grid):
    summary = grid["Alpha", "SpS", "GSM8K"].summary
    low, high = summary.speedup_ci95
    assert low < summary.speedup < high
    shown = f"{summary.speedup:.2f} [{low:.2f}, {high:.2f}]"
    assert shown in row(markdown(lay_out(spec, grid)), "SpS").replace("**", "")


def test_the_autoregressive_row_has_no_interval_and_no_bold(spec, grid):
    line = row(markdown(lay_out(spec, grid)), " AR ")
    assert "1.00" in line and "[" not in line and "**" not in line


def test_a_failed_and_a_missing_cell_show_as_such_with_their_reason(spec, holed):
    table = lay_out(spec, holed)
    for text in (markdown(table), latex(table), html([table])):
        assert "failed" in text and "missing" in text and "not run yet" in text
        assert "out of memory: 2 GiB" in text
        assert "2 of 6 prompts failed and are left out" in text
    line = row(markdown(table), "| SpS")
    assert line.count("failed¹") == 2 and "missing" not in line


def test_a_vacuous_bound_is_said_beside_its_cell(spec, grid):
    place = ("Alpha", "MARS & co", "GSM8K")
    noted = Outcome.measured(grid[place].summary.with_values(events={"vacuous_bound": 12, "other": 3}))
    silent = Outcome.measured(grid[place].summary.with_values(events={"vacuous_bound": 0}))
    found = lay_out(spec, {**grid, place: noted})
    assert len(found.notes) == 1 and "ln 2" in found.notes[0] and not lay_out(spec, {**grid, place: silent}).notes
    assert row(markdown(found), "MARS & co").count("¹") == len(spec.values)


def test_the_mean_is_only_over_a_full_row(spec, holed, grid):
    cells = {r.labels: r.cells for r in lay_out(spec, holed).rows}
    assert cells["Alpha", "SpS"][-1].numbers[0].value is None, "a column failed"
    whole = cells["Alpha", "MARS & co"][-1].numbers[0]
    parts = [grid["Alpha", "MARS & co", task].summary for task in ("GSM8K", "mini_code")]
    assert whole.value == pytest.approx(sum(part.speedup for part in parts) / 2)
    errors = [(high - low) / (2 * NORMAL_95) for low, high in (part.speedup_ci95 for part in parts)]
    half = NORMAL_95 * math.hypot(*errors) / 2
    assert whole.interval == pytest.approx((whole.value - half, whole.value + half))


def test_the_best_of_each_group_is_bold_and_a_baseline_never(spec):
    table = lay_out(spec, full_grid(spec, n=12))
    for _, rows in table.groups:
        for column in range(3):
            marked = [(r.labels[1], r.cells[column].numbers[0].best) for r in rows]
            values = {r.labels[1]: r.cells[column].numbers[0].value for r in rows if not r.baseline}
            assert [label for label, best in marked if best] == [max(values, key=values.get)]
    assert "bold: the best of its column" in " ".join(table.caption)


def test_under_accuracy_stands_what_an_answer_costs(grid):
    spec = table_spec(values=["accuracy", "tau"])
    first, costs = lay_out_all(spec, grid)
    assert costs.stub == ("Task", "Model", "Method") and costs.headers == ("",)
    assert {"Length ratio (×)", "Cap hits (%)", "Δ accuracy (pp)"} <= {column.header for column in costs.columns[0]}
    assert "No answer" in {column.name for column in costs.columns[0]}
    assert "Passes saved over lossless" not in {column.name for column in costs.columns[0]}, "measured in no cell"
    for text in (markdown(costs), latex(costs), html([first, costs])):
        assert "undecided" not in text, "five points of accuracy decide nothing"
    lines = pd.read_csv(io.StringIO(long_csv([first, costs], grid)))
    changes = lines[lines.value_name == "accuracy_change"].dropna(subset="value")
    assert changes.verdict.isna().all() and (changes.interval == "Learned-Miller and Thomas").all()
    assert len(lay_out_all(table_spec(), grid)) == 1


def test_lengths_at_the_limit_are_marked(grid):
    spec = table_spec(values=["accuracy"])
    place = ("Alpha", "SpS", "GSM8K")
    grid[place] = replace(grid[place], summary=grid[place].summary.with_values(baseline_cap_hit_share=0.25))
    costs = lay_out_all(spec, grid)[1]
    [note] = costs.notes
    assert note == "censored: 25% of the lossless answers end at the length limit"
    numbers = [number for r in costs.rows for cell in r.cells for number in cell.numbers]
    marked = {number.column.metric.name for number in numbers if number.notes}
    assert marked == {"answer_speedup", "answer_speedup_modelled", "length_ratio", "length_ratio_median", "pass_ratio",
                      "pass_ratio_median", "loop_share", "loop_change", "no_answer_share", "no_answer_change"}


HERE = Conditions("tiny", 1.0, 0, 1, 0.9, "A processor, 1 thread", "2026-11-21", "sha256:0123456789abcdef", "ar",
                  (TimingSession("2026-11-21T08:00:00", "host", "b1"),))


def test_the_conditions_stand_in_every_format(spec, grid):
    grid = {coords: replace(held, conditions=HERE) for coords, held in grid.items()}
    table = lay_out(spec, grid)
    wanted = "Pair tiny; seed 0; temperature 1; θ = 0.9; A processor, 1 thread; 2026-11-21; lock sha256:0123456789ab."
    assert table.caption[-1] == wanted and wanted in markdown(table)
    assert "2026-11-21" in html([table]) and "A processor" in latex(table)
    line = pd.read_csv(io.StringIO(long_csv([table], grid))).iloc[0]
    assert (line.pair, line.temperature, line.theta, line.session) == ("tiny", 1, 0.9, "2026-11-21 08:00 on host")


def test_speeds_of_two_sessions_are_marked_and_ratios_are_not(grid):
    spec = table_spec(values=["tokens_per_s", "speedup"])
    later = replace(HERE, sessions=(TimingSession("2026-11-21T09:00:00", "host", "b1"),))
    held = {coords: replace(one, conditions=later if coords[1] == "SpS" else HERE) for coords, one in grid.items()}
    table = lay_out(spec, held)
    assert len(table.notes) == 2 and "session 2 (2026-11-21 09:00 on host)" in " ".join(table.notes)
    for r in table.rows:
        for cell in r.cells[:-1]:
            assert [len(number.notes) for number in cell.numbers] == [1, 0]
    alone = {coords: replace(one, conditions=HERE) for coords, one in grid.items()}
    assert not lay_out(spec, alone).notes


def test_times_beside_other_workers_are_marked(grid):
    beside = replace(HERE, sessions=(TimingSession("2026-11-21T08:00:00", "host", "b1", shared=True),))
    held = {coords: replace(one, conditions=beside if coords[1] == "SpS" else HERE) for coords, one in grid.items()}
    table = lay_out(table_spec(values=["tau", "speedup"]), held)
    assert table.notes == ("timed while other workers may have run on the machine",)
    for r in table.rows:
        for cell in r.cells[:-1]:
            assert [len(number.notes) for number in cell.numbers] == [0, int("SpS" in r.labels)]
    lines = pd.read_csv(io.StringIO(long_csv([table], held)))
    sessions = set(lines[lines.Method == "SpS"].session.dropna())
    assert sessions == {"2026-11-21 08:00 on host, shared with other workers"}


def test_speedups_on_other_numbers_of_threads_are_marked(grid):
    one, two = (replace(HERE, sessions=(TimingSession(f"2026-11-21T0{hour}:00:00", "host", "b1", threads=threads),))
                for hour, threads in ((8, 1), (9, 2)))
    held = {coords: replace(own, conditions=one if coords[1] == "SpS" else two) for coords, own in grid.items()}
    table = lay_out(table_spec(values=["tau", "speedup"]), held)
    assert set(table.notes) == {
        "timed on 1 thread, other cells on 2 threads: neither speeds nor speedups compare",
        "timed on 2 threads, other cells on 1 thread: neither speeds nor speedups compare"}
    for r in table.rows:
        for cell in r.cells[:-1]:
            assert [len(number.notes) for number in cell.numbers] == [0, 1]
    same = {coords: replace(own, conditions=two) for coords, own in grid.items()}
    assert not lay_out(table_spec(values=["tau", "speedup"]), same).notes


@pytest.mark.parametrize(("environment", "threads", "text"), [
    ({"cpu": {"model": "EPYC", "threads": 2}}, [1, 1], "EPYC, 1 thread"),
    ({"cpu": {"model": "EPYC", "threads": 2}}, [2, 0, 1], "EPYC, 1 thread and 2 threads"),
    ({"cpu": {"model": "EPYC", "threads": 2}}, [0, 0], "EPYC"),
    ({"cpu": {"model": "EPYC"}, "accelerator": {"name": "H200", "count": 2}}, [4], "2 × H200"),
])
def test_the_machine_has_the_threads_of_the_clock(environment, threads, text: str):
    assert machine(environment, threads) == text


@pytest.mark.parametrize("value", ["tokens_per_s", "speedup", "answer_speedup_modelled"])
def test_a_drifting_baseline_is_said(grid, value: str):
    held = {coords: replace(one, conditions=HERE, summary=one.summary.with_values(baseline_tokens_per_s=speed))
            for (coords, one), speed in zip(grid.items(), [100, 111] * 6, strict=True)}
    assert lay_out(table_spec(values=[value]), held).notes == (
        "the speed of the baseline drifted by 11% within the session",)
    assert not lay_out(table_spec(values=["tau"]), held).notes


def test_stalled_prompts_are_said_where_the_clock_has_a_part(grid):
    held = {coords: replace(one, summary=one.summary.with_values(retimed=3, stalled=2)) for coords, one in grid.items()}
    assert lay_out(table_spec(values=["speedup"]), held).notes == (
        "3 of 4 timed prompts were timed again after the machine had stalled",
        "2 of 4 timed prompts were stalled in every repeat: the machine was not free")
    assert not lay_out(table_spec(values=["tau"]), held).notes


def test_the_caption_says_how_many_prompts_were_timed_and_in_how_many_sessions(grid):
    later = replace(HERE, sessions=(TimingSession("2026-11-21T09:00:00", "host", "b1"),))
    held = {coords: replace(one, conditions=later if coords[1] == "SpS" else HERE) for coords, one in grid.items()}
    assert lay_out(table_spec(), held).caption[0] == "n = 4 prompts per cell, 4 of them timed in 2 sessions."
    assert lay_out(table_spec(values=["tau"]), held).caption[0] == "n = 4 prompts per cell."


def test_published_numbers_only_beside_the_papers_pair(grid):
    table = lay_out(table_spec(published=PUBLISHED), grid)
    numbers = {r.labels: [cell.numbers[0] for cell in r.cells] for r in table.rows}
    assert [number.published for number in numbers["Alpha", "SpS"]] == [1.46, 1.72, 1.60]
    assert [number.published for number in numbers["Alpha", "MARS & co"]] == [3.74, 4.20, 3.74]
    assert all(number.published is None for number in numbers["Alpha", "AR"]), "the paper has no such row"
    assert all(n.published is None for r, found in numbers.items() if r[0] == "Beta" for n in found)
    first = numbers["Alpha", "SpS"][0]
    assert first.difference == pytest.approx(first.value - 1.46)
    assert first.published_text == f"paper 1.46 ({first.value - 1.46:+.2f})".replace("-", "−")
    assert first.published_text in markdown(table)


def test_a_published_number_stands_even_where_ours_is_missing(holed):
    table = lay_out(table_spec(published=PUBLISHED), holed)
    number = next(r for r in table.rows if r.labels == ("Alpha", "SpS")).cells[0].numbers[0]
    assert number.value is None and number.published_text == "paper 1.46" and number.difference is None
    assert "paper 1.46" in html([table])


def test_published_numbers_are_brought_to_the_summarys_unit(grid):
    values = [{"metric": "accuracy", "published_name": "speedup", "published_scale": 0.01}]
    table = lay_out(table_spec(values=values, published=PUBLISHED), grid)
    number = next(r for r in table.rows if r.labels == ("Alpha", "SpS")).cells[0].numbers[0]
    assert number.published == pytest.approx(0.0146) and "paper 1.46 (" in number.published_text


def test_the_csv_holds_every_value_in_the_summarys_units(spec, holed, grid):
    frame = pd.read_csv(io.StringIO(long_csv([lay_out(spec, holed)], holed)))
    assert len(frame) == (12 + 6) * 2, "twelve points and six means, two values each"
    one = frame[(frame.Model == "Beta") & (frame.Method == "SpS") & (frame.Task == "mini_code")]
    held = grid["Beta", "SpS", "mini_code"].summary
    assert one.value.tolist() == pytest.approx([held.speedup, held.tau])
    assert one.ci_low.iloc[0] == pytest.approx(held.speedup_ci95[0]) and one.n.tolist() == [4, 4]
    failed = frame[frame.state == "failed"]
    assert len(failed) == 2 and failed.value.isna().all() and failed.reason.str.startswith("out of memory").all()
    assert frame[frame.state == "missing"].value.isna().all()
    assert set(frame[frame.state == "mean"].Task) == {"Mean"}


def test_the_caption_says_n_the_interval_and_the_scores(grid):
    spec = table_spec(values=["accuracy"])
    for coords in grid:
        metric = "pass@1" if "code" in coords[2] else "exact_match"
        grid[coords] = made_up(n=5 if coords[0] == "Beta" else 4, metric=metric)
    assert lay_out(spec, grid).caption == (
        "n = 4 to 5 prompts per cell; score: exact_match (GSM8K), pass@1 (mini_code).",
        "95% intervals: Wilson; those of means from the standard errors of the averaged columns.")


def test_the_caption_says_what_a_speedup_is_worth(grid):
    for index, (coords, held) in enumerate(grid.items()):
        values = {"efficiency": 0.7 + index / 100, "roofline": 0.412}
        grid[coords] = replace(held, summary=held.summary.with_values(**values))
    shown = [0.7 + index / 100 for index, coords in enumerate(grid) if coords[1] != "AR"]
    words = (f"Drafts and forwards take {min(shown):.0%} to {max(shown):.0%} of a cycle; "
             "baseline at 41% of the copy bandwidth")
    assert words in lay_out(table_spec(values=["speedup"]), grid).caption[-1]
    assert "bandwidth" not in " ".join(lay_out(table_spec(values=["tau"]), grid).caption)


def test_an_axis_of_one_entry_is_told_in_the_caption():
    axes = table_spec().model_dump()["axes"]
    axes["Model"] = axes["Model"][:1]
    spec = table_spec(axes=axes)
    table = lay_out(spec, full_grid(spec))
    assert table.stub == ("Method",) and table.caption[0].startswith("Alpha; n = 4")
    assert [r.labels for r in table.rows] == [("AR",), ("SpS",), ("MARS & co",)]


def test_a_row_the_report_does_not_ask_for_is_not_there():
    axes = table_spec().model_dump()["axes"]
    axes["Model"][1]["only"] = {"Method": ("AR", "SpS"), "Task": ("GSM8K",)}
    spec = table_spec(axes=axes)
    table = lay_out(spec, full_grid(spec))
    assert [r.labels for r in table.rows if r.labels[0] == "Beta"] == [("Beta", "AR"), ("Beta", "SpS")]
    assert table.rows[-1].cells[1].state == "absent" and table.rows[-1].cells[-1].numbers[0].value is not None
    assert "missing" not in markdown(table)


def test_latex_is_booktabs_with_special_letters_escaped(spec, holed):
    text = latex(lay_out(spec, holed))
    for wanted in (r"\toprule", r"\bottomrule", r"\cmidrule(lr){3-4}", r"\multicolumn{2}{c}{mini\_code}", r"MARS \& co",
                   r"$\times$", r"$\tau$", r"50\% used"):
        assert wanted in text
    body = text[text.index(r"\midrule"):text.index(r"\bottomrule")]
    lines = [line for line in body.splitlines() if line.endswith("pt]")]
    assert len(lines) >= 6 and {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {7}
    assert text.count("{") == text.count("}")
    assert not re.search(r"[×τ−–]", text)


def test_markdown_keeps_its_columns(spec, holed):
    lines = [line for line in markdown(lay_out(spec, holed)).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 6 and len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_html_is_escaped(spec, holed):
    holed[FAILED] = Outcome.failed("<script>alert(1)</script>")
    text = html([lay_out(spec, holed)])
    assert "<script>" not in text and "&lt;script&gt;" in text and "MARS &amp; co" in text


def test_an_empty_grid_is_a_table_of_missing_cells(spec):
    table = lay_out(spec, {})
    assert all(cell.state == "missing" for r in table.rows for cell in r.cells[:-1])
    assert table.notes == ("missing: not run yet", "no mean: a column has no value")


def test_findings_on_the_papers_numbers_stand_in_every_format(grid):
    table = lay_out(table_spec(axes=table_spec().model_dump()["axes"] | {"Method": [
        {"label": "PLD", "published": "PLD"}, {"label": "EAGLE-3", "published": "EAGLE-3"}]}, published=PUBLISHED), {})
    assert any("its 5 columns have the mean 3.198" in note for note in table.notes)
    marked = [number for r in table.rows for cell in r.cells for number in cell.numbers if number.paper_notes]
    assert marked and all(number.printed for number in marked)
    assert DOUBTED in html([table]), "in the form for people they are one"
    for text in (markdown(table), latex(table), long_csv([table], {})):
        assert "its 5 columns have the mean 3.198" in text and "at least one pass of the target" in text
    mark = table.notes.index(next(note for note in table.notes if "3.198" in note)) + 1
    assert f"paper 3.12{str(mark).translate(SUPERSCRIPTS)}" in markdown(table)
    frame = pd.read_csv(io.StringIO(long_csv([table], {})))
    assert frame[frame.published == 3.12].printed.tolist() == [3.12]
    assert frame[frame.published == 3.12].published_notes.str.contains("3.198").all()


def test_a_published_number_keeps_its_digits_and_its_interval():
    values = [{"metric": "coverage", "published_scale": 0.01}]
    axes = {"Model": [{"label": "Llama-3.1-8B"}], "Task": [{"label": "MT-Bench"}], "Method": [{"label": "ARC"}]}
    table = lay_out(table_spec(axes=axes, rows=["Model", "Task"], columns=["Method"], mean=None, values=values,
                               published={"file": "arc_table5.csv", "pair": "Model"}), {})
    assert table.rows[0].cells[0].numbers[0].published_text == "paper 99.4 [98.7, 99.7]"


def test_a_text_in_csv_is_no_formula_and_a_number_stays_a_number(spec, grid) -> None:
    table = lay_out(spec, grid)
    hostile = ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "\rx", "fine", "-0.5", "+1e-3", "<script>")
    numbers = [table.rows[0].cells[0].numbers[0].value, *(-0.5, 1e-300, -1e17)]
    cells = [cell for row in table.rows for cell in row.cells]
    changed = {}
    for cell, text in zip(cells, hostile, strict=False):
        changed[text] = dataclasses.replace(cell, reason=text)
    for cell, number in zip(cells, numbers, strict=False):
        changed[f"number {number}"] = dataclasses.replace(
            cell, numbers=tuple(dataclasses.replace(one, value=number) for one in cell.numbers))
    row = dataclasses.replace(table.rows[0], cells=tuple(changed.values()))
    frame = pd.read_csv(io.StringIO(long_csv([dataclasses.replace(table, rows=(row,))], grid)), keep_default_na=False,
                        na_values=[""], float_precision="round_trip")
    assert {text.lstrip("'").strip() for text in frame["reason"].dropna()} >= {text.strip() for text in hostile}
    for text in frame["reason"].dropna():
        assert text in ("fine", "-0.5", "+1e-3", "<script>") or text[0] == "'"
    assert {number for number in frame["value"]} >= set(numbers)


def test_markdown_carries_no_html(spec, grid) -> None:
    table = lay_out(spec, grid)
    hostile = dataclasses.replace(table, caption=("<img src=x onerror=alert(1)> p < 0.05 & a <!-- b &lt;i>",),
                                  notes=("</td><script>",), headers=("<b>", *table.headers[1:]))
    text = markdown(hostile)
    assert not re.search(r"<[A-Za-z/!]", text) and "p < 0.05 & a" in text and "&amp;lt;i>" in text


def test_table_files_steer_no_terminal(spec, grid, tmp_path) -> None:
    named = spec.model_copy(update={"title": "Table\x1b[2J\u202e\x9b"})
    for path in render_table(named, grid, tmp_path):
        text = path.read_text(encoding="utf-8")
        assert printable(text) == text, path.suffix


def test_a_speedup_that_all_prompts_do_not_bear_out_has_a_footnote():
    cell = made_up().summary.with_values(repeatable=0.75, speedup_ci95=(1.9, 2.1), speedup_modelled=1.5,
                                         speedup_modelled_ci95=(1.4, 1.8))
    [other] = remarks(cell, with_speed=True)
    assert "25% of 4 timed prompts have other tokens" in other
    assert remarks(cell, with_speed=False) == remarks(made_up().summary, with_speed=True) == []
    [modelled] = disagreements(cell, "speedup")
    assert "over all 4 prompts, 1.50× [1.40, 1.80]" in modelled and disagreements(cell, "tau") == []
    assert disagreements(cell.with_values(speedup_modelled_ci95=(1.4, 1.95)), "speedup") == []
    [unlike] = disagreements(made_up().summary.with_values(timed_tau=9.0), "answer_speedup")
    assert "its 4 timed prompts have τ 9.00, outside the interval of all 4" in unlike
