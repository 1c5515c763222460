"""The opening of a page: its sentences follow from the numbers, and its figure shows every timed cell."""

from __future__ import annotations

from typing import Any

import pytest

from plots.overview import render_overview
from results.reports.opening import overview, sentences
from results.reports.viewer.cells import Group, Viewed
from results.store.summary import Summary
from tests.helpers.synthetic_cells import made_up


def cell(method: str, speed: float, *, lossless: bool = False, **values: Any) -> Viewed:
    """A cell whose answers are complete `speed` times sooner, ±0.1."""
    held = made_up().summary
    assert isinstance(held, Summary)
    summary = held.with_values(answer_speedup_modelled=speed, answer_speedup_modelled_ci95=(speed - 0.1, speed + 0.1),
                               accuracy_change=0.0, accuracy_change_ci95=(-0.01, 0.01), **values)
    return Viewed(method, method, "", lossless, method == "ar", [], [], summary=summary)


def group(*cells: Viewed) -> Group:
    return Group("g", "gsm", "pair tiny", [cell("ar", 1.0, lossless=True), cell("sps", 2.0, lossless=True), *cells], {})


def test_what_is_ahead_of_every_lossless_method() -> None:
    [text] = sentences([group(cell("mars", 2.5), cell("arc", 2.1))])
    assert text.startswith("1 of 2 relaxed cells completes answers sooner than the best lossless method")
    assert text.endswith("mars on gsm (2.50× against 2.00×, accuracy not worse).")
    assert "arc" not in text, "its interval overlaps"
    [text] = sentences([group(cell("arc", 2.1))])
    assert text.startswith("None of 1 relaxed cell ")
    assert sentences([group()]) == sentences([]) == []


@pytest.mark.parametrize(("values", "wanted"), [
    ({"speedup": 3.0, "speedup_ci95": (2.9, 3.1), "length_ratio": 1.4, "length_ratio_ci95": (1.2, 1.6)},
     "Faster by the token, but longer answers use up the gain: mars on gsm (length 1.40×)."),
    ({"tau_gain": 0.5, "tau_gain_ci95": (0.3, 0.7), "tau_gain_greedier": 0.4, "tau_gain_relaxed": 0.1},
     "More of the gain in τ is greedier decoding than relaxation: mars on gsm (0.40 of 0.50)."),
])
def test_what_only_seems_a_gain(values: dict[str, Any], wanted: str) -> None:
    assert sentences([group(cell("mars", 2.0, **values))])[1:] == [wanted]


def test_what_is_lost_and_what_is_undecided() -> None:
    worse, open_ = cell("mars", 2.0), cell("arc", 2.0)
    assert worse.summary is not None and open_.summary is not None
    lost = worse.summary.with_values(accuracy_change=-0.1, accuracy_change_ci95=(-0.15, -0.05))
    unknown = open_.summary.with_values(accuracy_change=0.01, accuracy_change_ci95=(-0.05, 0.07), n=100)
    cells = [Viewed("mars", "mars", "", False, False, [], [], summary=lost),
             Viewed("arc", "arc", "", False, False, [], [], summary=unknown)]
    _, less, undecided = sentences([group(*cells)])
    assert less == "Less accurate than the target alone: mars on gsm (−10.0 pp)."
    assert undecided.startswith("Whether accuracy falls by more than 2 points is undecided for 1 cell; deciding takes")


def test_many_are_counted() -> None:
    [text] = sentences([group(*(cell(f"m{i}", 3.0) for i in range(9)))])
    assert text.endswith("and 5 more.") and text.count("on gsm") == 4


def test_the_opening_and_its_figure(tmp_path) -> None:
    groups = [group(cell("mars", 2.5), cell("mars rule.theta=0.5", 2.6))]
    paths = render_overview(groups, tmp_path)
    assert [path.suffix for path in paths] == [".png", ".pdf", ".svg"] and paths[0].stat().st_size > 5000
    assert render_overview([Group("g", "gsm", "", [cell("ar", 1.0)], {})], tmp_path) == []
    shown = overview(groups, {"since": "2026-11-21T10:00:00", "cpu": {"model": "<CPU>", "threads": 2}})
    assert "4 cells of 3 methods on gsm (pair tiny), 4 prompts each, on &lt;CPU&gt;, 2 threads, 2026-11-21." in shown
    assert overview([], {}) is None
