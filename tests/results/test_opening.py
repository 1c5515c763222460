"""The opening of a page: its sentences follow from the numbers, and its figure shows every timed cell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from bench.reports.render import groups_with
from plots.overview import draw, render_overview, short_settings
from plots.style import style
from results.metrics.summary import summarise
from results.metrics.verdict import MARGIN, over_best, verdicts
from results.reports.opening import best_lossless, overview, row_of, sentences, standings
from results.reports.viewer.groups import Group, Viewed
from tests.helpers.synthetic_cells import compared, sample

N = 120


def cell(method: str, speed: float, *, lossless: bool = False, right: int = N, spread: float = 0.0,
         **values: Any) -> Viewed:
    """A cell whose answers are complete `speed` times sooner, prompt by prompt between 1 ± `spread` of that: 20 tokens
    in 20 cycles; autoregressive decoding takes a second and answers all but the last two rightly."""
    alone, pairs = method == "ar", []
    for i in range(N):
        base = sample(f"p{i}", range(21), committed=[1] * 20, accepted=[0] * 20, score=float(i < N - 2))
        own = replace(base, score=float(i < right - 2))
        seconds = 1 / speed / (1 + spread * (2 * i / (N - 1) - 1))
        pairs.append(compared(base if alone else own, None if alone else base, decode_s=1.0 if alone else seconds,
                              base_decode_s=1.0, prefill_s=0.0))
    steady = {"accuracy_change": 0.0, "accuracy_change_ci95": (-0.01, 0.01)} if right == N else {}
    summary = summarise(pairs, metric="exact_match", proportion=True).with_values(**steady | values)
    return Viewed(method, method, "", lossless, alone, [pair.sample for pair in pairs],
                  [pair.timed for pair in pairs if pair.timed is not None], summary=summary)


def group(*cells: Viewed) -> Group:
    return Group("g", "gsm", "pair tiny", [cell("ar", 1.0, lossless=True), cell("sps", 2.0, lossless=True), *cells], {})


def test_what_is_ahead_of_every_lossless_method() -> None:
    text, _ = sentences([group(cell("mars", 2.5), cell("arc", 2.08, spread=0.3))])
    assert text.startswith("1 of 2 relaxed cells is a gain over the best lossless method on the same "
                           "prompts: mars on gsm (1.25× [1.25, 1.25] as fast, accuracy +0.0 pp).")
    assert "arc" not in text, "its interval holds 1"
    text, undecided = sentences([group(cell("arc", 2.08, spread=0.3))])
    assert text.startswith("None of 1 relaxed cell is shown to be a gain: to complete answers sooner than ")
    assert undecided.startswith("Undecided: 1 cell")
    assert sentences([]) == []


def test_a_page_without_a_comparison_opens_with_a_conclusion_too() -> None:
    [fastest] = sentences([group(cell("eagle3", 1.5, lossless=True))])
    assert fastest == ("The fastest lossless method is sps on gsm: answers 2.00× [2.00, 2.00] as fast as the target "
                       "alone.")
    alone = replace(group(), cells=[cell("mars", 2.5)])
    [none] = sentences([alone])
    assert none.startswith("No lossless method was timed beside these cells")


def test_a_report_opens_with_its_own_cells_and_points_of_one_method_say_what_they_are() -> None:
    both = group(cell("mars rule.theta=0.9", 2.5), cell("mars rule.theta=0.5", 3.0), cell("arc", 1.5))
    [own] = groups_with([both], {"mars rule.theta=0.9": "MARS, θ = 0.9"})
    assert [member.key for member in own.cells] == ["ar", "mars rule.theta=0.9"]
    assert not groups_with([both], {"fsd": ""})
    [named] = groups_with([both], {"sps": "", "mars rule.theta=0.9": "MARS, θ = 0.9"})
    assert ": MARS, θ = 0.9 on gsm (1.25× " in sentences([named])[0], "by the report's name for it"
    with style():
        texts = [text.get_text() for text in draw([both]).axes[0].texts]
    assert texts == ["0.9", "0.5"]
    assert short_settings(cell("eagle3 draft.length=3 drafter.total=8", 1.0)) == "K=3, total=8"


def test_the_verdict_is_that_of_the_tables() -> None:
    """One rule: of intervals that overlap, the one of the paired ratio decides."""
    for relaxed in (cell("mars", 2.5), cell("mars", 1.5), cell("mars", 2.08, spread=0.3), cell("mars", 2.5, right=20)):
        held = group(relaxed)
        ar, sps, own = (row_of(held, one) for one in held.cells)
        assert relaxed.summary is not None and len(ar.pairs) == len(own.pairs) == N
        [standing] = standings([held])
        assert standing.gain == verdicts({"own": over_best(own, sps, MARGIN)["over_best_tests"]})["own"]
    three = group(cell("a", 2.5), cell("b", 2.5, right=20), cell("c", 1.5))
    kinds = [standing.gain.kind for standing in standings([three])]
    assert kinds == ["gain", "gain at a price", "no gain"]


def test_the_best_lossless_answers_are_those_of_the_tables() -> None:
    """Each half of the prompts is of the cell that was fastest on the other half; plain decoding only where no other
    lossless cell is timed."""
    fast, slow = cell("fast", 2.2, lossless=True), cell("slow", 1.2, lossless=True)
    best = best_lossless(group(fast, slow, cell("mars", 9.0)))
    assert best is not None and best.lossless and len(best.pairs) == N
    assert [pair.sample for pair in best.pairs] == sorted(fast.samples, key=lambda one: one.id)
    assert all(pair.timed.own.decode_s == pytest.approx(1 / 2.2) for pair in best.pairs)
    alone = best_lossless(replace(group(), cells=group().cells[:1]))
    assert alone is not None and all(pair.timed.own.decode_s == 1.0 for pair in alone.pairs)
    assert best_lossless(replace(group(), cells=[replace(one, summary=None) for one in group().cells])) is None


def test_a_gain_at_a_price_is_no_gain() -> None:
    none, priced = sentences([group(cell("mars", 2.5, right=20))])
    assert none.startswith("None of 1 relaxed cell is shown")
    assert priced.startswith("Sooner than the best lossless method on the same prompts, but worse by more than the "
                             "margin: mars on gsm (1.25× [1.25, 1.25] as fast, accuracy −")


@pytest.mark.parametrize(("values", "wanted"), [
    ({"speedup_modelled": 3.0, "speedup_modelled_ci95": (2.9, 3.1), "length_ratio": 1.4,
      "length_ratio_ci95": (1.2, 1.6)},
     "Faster by the token, but longer answers use up the gain: mars on gsm (length 1.40×)."),
    ({"tau_gain": 0.5, "tau_gain_ci95": (0.3, 0.7), "tau_gain_greedier": 0.4,
      "tau_gain_greedier_ci95": (0.3, 0.5), "tau_gain_relaxed": 0.1, "tau_gain_relaxed_ci95": (0.0, 0.2),
      "tau_gain_match": "matched"},
     "More of the gain in τ is greedier decoding than relaxation: mars on gsm (0.40 of 0.50)."),
])
def test_what_only_seems_a_gain(values: dict[str, Any], wanted: str) -> None:
    assert sentences([group(cell("mars", 2.0, **values))])[1] == wanted


def test_many_are_counted() -> None:
    [text] = sentences([group(*(cell(f"m{i}", 3.0) for i in range(9)))])
    assert text.startswith("9 of 9 relaxed cells are gains") and " and 5 more." in text and text.count("on gsm") == 4


def test_the_opening_and_its_figure(tmp_path) -> None:
    groups = [group(cell("mars", 2.5), cell("mars rule.theta=0.5", 2.6))]
    paths = render_overview(groups, tmp_path)
    assert [path.suffix for path in paths] == [".png", ".pdf", ".svg"] and paths[0].stat().st_size > 5000
    assert render_overview([Group("g", "gsm", "", [cell("ar", 1.0)], {})], tmp_path) == []
    shown = overview(groups, {"since": "2026-11-21T10:00:00", "cpu": {"model": "<CPU>", "threads": 2}})
    assert "4 cells of 3 methods on gsm (pair tiny), 120 prompts each, on &lt;CPU&gt;, 2 threads, 2026-01-01." in shown
    assert overview([], {}) is None


@pytest.mark.parametrize(("right", "nll", "shown"), [(1.0, 0.5, "Accuracy (%)"), (0.0, 0.5, "NLL under the target"),
                                                     (0.0, None, "Identical outputs (%)")])
def test_the_figure_shows_a_quality_that_tells_methods_apart(right, nll, shown) -> None:
    """A score of which nothing can be lost says nothing: NLL stands for it."""
    ar, *others = group(cell("mars", 2.5, nll=nll)).cells
    ar = replace(ar, samples=[replace(one, score=right) for one in ar.samples])
    cells = [replace(one, summary=one.summary.with_values(nll=nll, baseline_nll=nll)) for one in (ar, *others)
             if one.summary is not None]
    untimed = replace(cells[0], timed=[], summary=None)
    for baseline in (cells[0], untimed):  # a report of relaxed cells alone does not time plain decoding by itself
        with style():
            [ax] = draw([Group("g", "gsm", "pair tiny", [baseline, *cells[1:]], {})]).axes
        assert ax.get_ylabel().startswith(shown)
        levels = [line for line in ax.lines if line.get_linestyle() == "--" and len(set(line.get_ydata())) == 1]
        assert len(levels) == (0 if shown.startswith("Identical") else 1), "plain decoding's level"


def test_titles_of_panels_stay_over_their_panel() -> None:
    about = "pair llama3_70b_instruct, T = 0.6, top-p 0.95, seed 0, ≤ 32768 tokens"
    groups = [Group(key, "mini_instruct", about, group(cell("eagle3-coarse_grained", 2.5)).cells, {}) for key in "abcd"]
    with style():
        figure = draw(groups)
        FigureCanvasAgg(figure).draw()
        drawn = figure.canvas.get_renderer()
        titles = [ax.title.get_window_extent(drawn) for ax in figure.axes]
        others = [figure.legends[0].get_window_extent(drawn), *(ax.get_window_extent(drawn) for ax in figure.axes)]
    for number, title in enumerate(titles):
        assert title.x1 <= figure.axes[number].get_tightbbox(drawn).x1 + 1
        assert not any(title.overlaps(other) for other in [*titles[:number], *titles[number + 1:], *others])
