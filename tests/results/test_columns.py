"""Columns of some cells only, numbers relative to another cell, and what an LLM judge gives."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from results.metrics.catalog import METRICS
from results.metrics.paired import relative
from results.reports.columns import Column
from results.reports.formats import html, latex, long_csv, markdown
from results.reports.grid import Outcome
from results.reports.layout import lay_out
from results.reports.table import Number
from results.store.sample import JudgeSummary
from tests.helpers.synthetic_cells import full_grid, made_up, table_spec

ONLY = {"mean": None, "values": [
    {"metric": "accuracy", "only": {"Task": ["mini_code"]}}, {"metric": "judge_score", "only": {"Task": ["GSM8K"]}},
    {"metric": "tau", "only": {"Method": ["SpS", "MARS & co"]}}]}
OVER = {"mean": None, "values": [{"metric": "speedup", "label": "over SpS", "over": {"Method": "SpS"}},
                                 {"metric": "tokens_per_s", "label": "gain", "minus": {"Method": "SpS"}}]}
items = st.dictionaries(st.sampled_from("abcdef"), st.tuples(*[st.floats(0.5, 50)] * 4), min_size=1)


def lines(text: str, *labels: str) -> list[str]:
    return [line for line in text.splitlines() if all(label in line for label in labels)]


def test_a_header_has_the_columns_of_its_cells():
    spec = table_spec(**ONLY)
    table = lay_out(spec, full_grid(spec))
    assert [[column.metric.name for column in under] for under in table.columns] == [
        ["judge_score", "tau"], ["accuracy", "tau"]]
    heads = lines(markdown(table), "GSM8K")[0]
    assert [part.strip() for part in heads.strip("|").split("|")] == [
        "Model", "Method", "GSM8K · Judge", "GSM8K · τ", "mini_code · Accuracy (%)", "mini_code · τ"]
    assert r"\multicolumn{2}{c}{GSM8K}" in latex(table) and r"\cmidrule(lr){5-6}" in latex(table)
    assert html([table]).count('colspan="2"') == 2


def test_a_dash_stands_where_a_column_does_not_concern_the_row():
    spec = table_spec(**ONLY)
    table, grid = lay_out(spec, full_grid(spec)), full_grid(spec)
    plain = lines(markdown(table), " AR ")[0].strip("|").split("|")
    assert plain[3].strip() == "–" and plain[5].strip() == "–" and plain[4].strip().startswith("50.0")
    rows = list(csv.DictReader(io.StringIO(long_csv([table], grid))))
    assert not [row for row in rows if row["Method"] == "AR" and row["value_name"] == "tau"]


@settings(max_examples=20, deadline=None)
@given(own=items, other=items)
def test_a_relative_number_is_that_of_the_common_prompts(own, other):
    common = sorted(own.keys() & other.keys())
    value, interval = relative("speedup", "over", own, other)
    if not common:
        assert (value, interval) == (None, None)
        return

    def speedup(side):
        tokens, seconds, base_tokens, base_seconds = np.sum([side[i] for i in common], axis=0)
        return (tokens / seconds) / (base_tokens / base_seconds)

    assert value == pytest.approx(speedup(own) / speedup(other))
    assert (interval is None) == (len(common) < 2)
    assert interval is None or interval[0] <= interval[1]
    back, _ = relative("speedup", "over", other, own)
    assert value * back == pytest.approx(1)
    same, ends = relative("tau", "minus", {i: own[i][:2] for i in own}, {i: own[i][:2] for i in own})
    assert same == 0 and ends in (None, (0, 0))


def test_a_ratio_stands_beside_the_papers():
    spec = table_spec(**OVER)
    grid = full_grid(spec)
    rows = list(csv.DictReader(io.StringIO(long_csv([lay_out(spec, grid)], grid))))
    at = {(row["Model"], row["Method"], row["Task"], row["value_name"]): row for row in rows}
    mars, sps = (grid["Alpha", name, "GSM8K"].summary for name in ("MARS & co", "SpS"))
    ratio = at["Alpha", "MARS & co", "GSM8K", "speedup_over"]
    assert float(ratio["value"]) == pytest.approx(mars.speedup / sps.speedup)
    assert float(ratio["ci_low"]) <= float(ratio["value"]) <= float(ratio["ci_high"])
    gain = at["Alpha", "MARS & co", "GSM8K", "tokens_per_s_minus"]
    assert float(gain["value"]) == pytest.approx(mars.tokens_per_s - sps.tokens_per_s)
    own = lines(markdown(lay_out(spec, grid)), "| SpS")[0]
    assert "1.00" in own and "+0.0" in own and "[" not in own, "the reference itself"


def test_a_missing_reference_is_told():
    spec = table_spec(**OVER)
    grid = {coords: held for coords, held in full_grid(spec).items() if coords != ("Alpha", "SpS", "GSM8K")}
    text = markdown(lay_out(spec, grid))
    assert "no over: SpS was not measured on the same prompts" in text


def test_the_edition_drops_columns_whose_cells_it_lacks():
    axes = table_spec().model_dump()["axes"]
    axes["Task"] = [{"label": "mini", "scale": "embedded"}, {"label": "Alpaca", "scale": "paper"}]
    axes["Model"] = [{"label": "Alpha", "overrides": ["pair=alpha"], "scale": "embedded"},
                     {"label": "Big", "overrides": ["pair=big"], "scale": "paper"}]
    spec = table_spec(axes=axes, mean=None, values=[
        {"metric": "accuracy", "only": {"Task": ["mini"]}},
        {"metric": "win_rate", "only": {"Task": ["Alpaca"]}}, "tau"])
    assert [spec.edition(pairs).metrics()[:2] for pairs in ((), ["big"])] == [["accuracy", "tau"], ["win_rate", "tau"]]


@pytest.mark.parametrize(("values", "said"), [
    ([{"metric": "tau", "only": {"Task": ["nowhere"]}}], "values: τ names Task"),
    ([{"metric": "tau", "over": {"Rule": "SpS"}}], "no such axis"),
    ([{"metric": "tau", "over": {"Method": "SpS"}, "minus": {"Method": "AR"}}], "not both"),
    ([{"metric": "efficiency", "over": {"Method": "SpS"}}], "cannot be compared prompt by prompt"),
])
def test_mistakes_are_named(values, said):
    with pytest.raises(ValidationError, match=said):
        table_spec(mean=None, values=values)
    with pytest.raises(ValidationError, match="mean: needs columns without"):
        table_spec(values=[{"metric": "tau", "over": {"Method": "SpS"}}])


def judged(scores: JudgeSummary) -> Outcome:
    summary = made_up().summary.with_values(judge=scores)
    return Outcome.measured(summary.with_values(**scores.metrics()), unjudged="not judged")


def test_what_a_judge_gave_stands_with_its_interval_and_both_orders():
    assert not any(METRICS[name].compared for name in ("judge_score", "win_rate")), "rows are not compared by grades"
    spec = table_spec(mean=None, values=["judge_score", "win_rate"])
    grid = {coords: Outcome.measured(held.summary, unjudged="needs judge.base_url")
            for coords, held in full_grid(spec).items()}
    grid["Alpha", "SpS", "GSM8K"] = judged(JudgeSummary(
        model="own", mode="single", score=7.25, ci95=(7.0, 7.5), n=4, replies=8, unread=1))
    grid["Alpha", "SpS", "mini_code"] = judged(JudgeSummary(
        model="own", mode="pairwise", win_rate=0.5, win_first=0.75, win_second=0.25, ci95=(0.2, 0.8), n=4, replies=8,
        unread=0))
    text = markdown(lay_out(spec, grid))
    [line] = lines(text, "Alpha", "| SpS") or lines(text, "| SpS")[:1]
    assert "7.25" in line and "[7.00, 7.50]" in line and "50.0" in line and "%" not in line
    assert "judged by own: 4 prompts, 1 of 8 replies without a verdict" in text
    assert "75.0% won where its answer stood first, 25.0% where second" in text
    assert "needs judge.base_url" in lines(text, "| MARS")[0]


def test_zero_has_no_minus() -> None:
    """What rounds to nothing is printed as +0.00 where signs are printed."""
    column = Column.model_validate("tau_gain")
    number = Number(column, -0.0004, interval=(-0.01, -0.0))
    assert (number.text, number.interval_text) == ("+0.00", "[−0.01, +0.00]")
