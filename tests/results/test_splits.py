"""What a page opens with: the cells whose gain in τ is told apart, and the lossless one that they are compared with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plots.gains import stacked
from plots.overview import render_splits
from plots.style import style
from results.metrics.summary import Summary
from results.metrics.tau_gain import MATCHED
from results.reports.axes import AS_GIVEN
from results.reports.grid import Outcome
from results.reports.opening import overview
from results.reports.spec import FigureSpec, TableSpec
from results.reports.splits import Split, method_names, splits_of_groups, splits_of_report
from results.reports.viewer.groups import Group, Viewed
from tests.helpers.synthetic_cells import made_up
from tests.helpers.viewed_cells import group as viewed_group

PLAIN = made_up().summary
assert PLAIN is not None and PLAIN.tau is not None


def gained(relaxed: float, greedier: float, **values: Any) -> Summary:
    gain = relaxed + greedier
    return PLAIN.with_values(tau=PLAIN.tau + gain, tau_gain=gain, tau_gain_ci95=(gain - 0.1, gain + 0.1),
                             tau_gain_relaxed=relaxed, tau_gain_greedier=greedier, tau_gain_q=0.0,
                             tau_gain_match=MATCHED, **values)


CELLS = {"lossless": PLAIN, "other": PLAIN.with_values(tau=9.0), "T = 0": PLAIN.with_values(tau=2.5, tau_gain=0.1),
         "loss": gained(-0.5, 0.0), "mars": gained(0.4, 0.3)}


def spec(kind: str, **axes: Any) -> dict[str, Any]:
    """A report over two tasks and the rules of `CELLS`."""
    rules = [{"label": name, "overrides": [f"rule={name}"]} for name in CELLS]
    tasks = [{"label": name, "overrides": [f"task={name}"]} for name in ("a", "b")]
    return {"name": "r", "title": "R", "kind": kind, "axes": {"Task": tasks, "Rule": rules, **axes}}


def grid(*more: str) -> dict[tuple[str, ...], Outcome]:
    return {("a", name, *more): Outcome.measured(cell) for name, cell in CELLS.items()} | {
        ("b", "lossless", *more): Outcome.measured(PLAIN)}


def test_a_report_has_a_split_for_each_task_with_one() -> None:
    table = TableSpec.model_validate(spec("table") | {"rows": ["Task", "Rule"], "values": ["tau"]})
    figure = FigureSpec.model_validate(spec("figure") | {"figure": {
        "kind": "gains", "series": "Rule", "panels": ["Task"]}})
    for report in (table, figure):
        [split] = splits_of_report(report, grid())
        assert split.title == "a" and list(split.cells) == ["mars", "lossless", "loss"], "b has no split"
        assert split.beside == ["accuracy"]
    assert splits_of_report(table, {}) == []


def test_what_is_of_the_method_tells_rows_apart() -> None:
    depths = [{"label": f"depth {depth}", "overrides": [f"drafter.depth={depth}"]} for depth in (3, 6)]
    report = TableSpec.model_validate(spec("table", Depth=depths) | {
        "rows": ["Task", "Rule", "Depth"], "values": ["tau"]})
    [split] = splits_of_report(report, grid("depth 6") | {("a", "mars", "depth 3"): Outcome.measured(gained(1, 0))})
    assert list(split.cells) == ["mars, depth 3", "mars, depth 6", "lossless, depth 6", "loss, depth 6"]
    assert method_names(report)["b", "mars", "depth 3"] == "mars, depth 3", "without the task"
    lossless = {"label": "best lossless", "variants": [{"label": "tree", "overrides": ["rule=lossless"]}]}
    plain = spec("table") | {"rows": ["Task", "Rule"], "values": ["tau"], "choice": {
        "axes": ["Setting"], "lossless": "best lossless"}}
    plain["axes"]["Rule"].append(lossless)
    names = method_names(TableSpec.model_validate(plain))
    assert {names["a", "mars", AS_GIVEN], names["a", "best lossless", "tree"]} == {"mars", "best lossless, tree"}


def test_the_table_has_five_columns_and_0_for_the_reference() -> None:
    split = Split.of("a", CELLS)
    assert split is not None
    texts = {name: [number.text for number in numbers] for name, numbers in split.rows()}
    assert texts["mars"] == ["+0.70", "+0.40", "+0.30", "75.0"]
    assert texts["lossless"] == ["+0.00", "+0.00", "+0.00", "75.0"]
    parts = dict.fromkeys(("tau_gain_relaxed", "tau_gain_greedier", "tau_gain_q", "tau_gain_match"))
    assert Split.of("a", {"gain alone": gained(0.1, 0.2).with_values(**parts)}) is None


def test_cells_of_a_store_have_splits_too(tmp_path: Path) -> None:
    known = viewed_group(tmp_path, cells=3)
    cells: list[Viewed] = [replace(cell, summary=summary) for cell, summary in
                           zip(known.cells, (PLAIN, gained(0.4, 0.3), None), strict=True)]
    held: Group = replace(known, cells=cells)
    [split] = splits_of_groups([held])
    assert split.title == f"{held.task}: {held.about}" and list(split.cells) == [cells[1].method]
    assert splits_of_groups([replace(held, cells=cells[:1])]) == []


def test_the_opening_shows_the_split_and_folds_the_overview(tmp_path: Path) -> None:
    known = viewed_group(tmp_path, cells=2)
    groups = [replace(known, cells=[replace(cell, summary=PLAIN) for cell in known.cells])]
    split = Split.of("a <b>", CELLS)
    assert split is not None
    assert [path.name for path in render_splits([split], tmp_path)] == ["opening.png", "opening.pdf", "opening.svg"]
    assert render_splits([], tmp_path) == []
    page = overview(groups, {}, "<overview>", [split], "<gains>")  # type: ignore[arg-type]
    assert page is not None and page.index("&lt;gains&gt;") < page.index("a &lt;b&gt;") < page.index("&lt;overview&gt;")
    assert page.count("<tr>") == 1 + len(split.cells) and '<details class="fold">' in page
    plain = overview(groups, {}, "<overview>")  # type: ignore[arg-type]
    assert plain is not None and "fold" not in plain and "<tr>" not in plain


@pytest.mark.parametrize("beside", [[], ["accuracy"]])
def test_bars_of_several_splits_stand_below_each_other(beside: list[str]) -> None:
    with style():
        axes = stacked({"one": CELLS, "two": {"mars": CELLS["mars"]}}, beside).axes
    assert [ax.get_title("left") for ax in axes] == ["one", "two"]
    assert [text.get_text() for text in axes[0].get_yticklabels()][-1] == "mars"
    assert ("75.0%" in [text.get_text() for text in axes[1].texts]) == bool(beside)
