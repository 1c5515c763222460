"""Figures: what is drawn is what was measured, readable without colour, and the same bytes every
time."""

import csv
import io
from collections import Counter
from dataclasses import replace
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from plots import arc_fig2, bars, dropmatch_fig3, labels, limit, pareto, sweep
from plots.data import Data
from plots.render import data_of, render
from plots.style import COLOURS, look, style
from results.reports.formats import figure_csv
from results.reports.frame import cells_frame
from results.reports.grid import Outcome, panels
from results.reports.spec import FigureSpec
from tests.helpers.synthetic_cells import figure_spec, full_grid, made_up, table_spec, with_values

METHODS = table_spec().model_dump()["axes"]
THETAS = {"override": "rule.theta={}", "values": [0.84, 0.88, 0.92, 0.96]}
AXES = {
    "sweep": {
        "Task": METHODS["Task"],
        "K": {"override": "draft.length={}", "values": [7, 10], "label": "K = {}"},
        "theta": THETAS,
    },
    "pareto": METHODS,
    "bars": METHODS,
}
FIGURES = {
    "sweep": {
        "kind": "sweep",
        "x": "theta",
        "left": "accuracy",
        "right": "speedup",
        "panels": ["Task"],
        "lines": "K",
    },
    "pareto": {
        "kind": "pareto",
        "x": "tokens_per_s",
        "y": "accuracy",
        "series": "Method",
        "panels": ["Model", "Task"],
        "connect": ["SpS", "MARS & co"],
        "allocation": ["SpS", "AR"],
    },
    "bars": {
        "kind": "bars",
        "y": "speedup",
        "clusters": "Task",
        "series": "Method",
        "panels": ["Model"],
    },
}
MODULES = {"sweep": sweep, "pareto": pareto, "bars": bars}


def spec_of(kind: str, **changes) -> FigureSpec:
    return figure_spec(AXES[kind], FIGURES[kind] | changes, name=kind)


def drawn(kind: str, grid: dict, **changes):
    return drawing(MODULES[kind], spec_of(kind, **changes), grid)


def drawing(module, spec: FigureSpec, grid: dict):
    with style():
        return module.draw(data_of(spec, grid))


def lines(ax, count=None):
    found = [line for line in ax.lines if len(line.get_xdata()) > 2]
    assert count is None or len(found) == count
    return found


@pytest.mark.parametrize("kind", FIGURES)
def test_three_files_the_same_every_time(kind, tmp_path):
    spec = spec_of(kind)
    grid = full_grid(spec)
    first = render(spec, grid, tmp_path / "a")
    assert [path.name for path in first] == [
        f"{kind}.png",
        f"{kind}.pdf",
        f"{kind}.svg",
        f"{kind}.csv",
    ]
    assert all(path.stat().st_size > 5000 for path in first[:3])
    assert (
        min(text.get_fontsize() for text in drawn(kind, grid).findobj(Text) if text.get_text()) >= 8
    )
    if kind == "pareto":  # the most that can differ; all kinds are saved alike
        for one, other in zip(first, render(spec, grid, tmp_path / "b"), strict=True):
            assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("kind", FIGURES)
def test_what_was_not_measured_is_said_and_not_drawn_as_a_number(kind, tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(
        import_module("plots.render"), "save", lambda figure, *_: kept.append(figure) or []
    )
    spec = spec_of(kind)
    render(spec, {spec.points()[0].coords: Outcome.failed("out of memory")}, tmp_path)
    said = kept[0].get_supxlabel().replace("\n", " ")
    assert said.startswith("not measured: ") and "failed: out of memory" in said
    assert said.endswith(f" and {len(spec.points()) - 1} more")
    drawn_lines = [line for ax in kept[0].axes for line in ax.lines if line.get_marker() != "x"]
    heights = [
        y for line in drawn_lines if list(line.get_xdata()) != [0, 1] for y in line.get_ydata()
    ]  # not axhline
    assert np.isnan(heights).all() and not any(ax.patches for ax in kept[0].axes)


def test_a_sweep_draws_the_measured_values_with_bands_on_two_scales():
    """A band is drawn whole, also where it reaches beyond the points by half their range; a line
    breaks where a point was not measured."""
    spec = spec_of("sweep")
    grid = full_grid(spec)
    speeds = {coords: cell.summary.speedup for coords, cell in grid.items()}
    half = (max(speeds.values()) - min(speeds.values())) / 2
    for coords, speed in speeds.items():
        ends = {"speedup_ci95": (speed - half, speed + half)}
        grid[coords] = with_values(grid[coords], speedup=speed, **ends)
    places = [("GSM8K", "K = 10", str(theta)) for theta in THETAS["values"]]
    accuracies = [100 * grid[place].summary.accuracy for place in places]
    accuracies[2] = np.nan
    del grid[places[2]]
    figure = drawn("sweep", grid)
    left, right = figure.axes[0], figure.axes[3]
    assert (left.get_ylabel(), right.get_ylabel()) == ("Accuracy (%)", "Speedup (×)")
    assert [ax.get_title(loc="left") for ax in figure.axes[:2]] == ["GSM8K", "mini_code"]
    np.testing.assert_allclose(lines(left, 2)[1].get_ydata(), accuracies)
    np.testing.assert_allclose(lines(right, 2)[1].get_xdata(), THETAS["values"])
    values = np.concatenate([line.get_ydata() for line in lines(right, 2)])
    paths = [path for drawn in right.collections for path in drawn.get_paths()]
    band = np.concatenate([path.vertices[:, 1] for path in paths])
    assert (band.min(), band.max()) == pytest.approx((values.min() - half, values.max() + half))
    assert right.get_ylim()[0] <= band.min() and band.max() <= right.get_ylim()[1]
    level = [line for line in right.lines if len(line.get_xdata()) == 2]
    assert [line.get_ydata()[0] for line in level] == [1.0], "the baseline"


def test_a_sweep_of_one_task_shows_its_points_and_its_whole_legend():
    """However wide the intervals of few prompts are, and however narrow the figure is."""
    spec = figure_spec(
        {name: AXES["sweep"][name] for name in ("K", "theta")}, FIGURES["sweep"] | {"panels": []}
    )
    wide = {
        coords: with_values(cell, speedup_ci95=(0.0, 6000.0))
        for coords, cell in full_grid(spec).items()
    }
    figure = drawing(sweep, spec, wide)
    figure.draw_without_rendering()
    assert (
        max(line.get_ydata()[0] for line in figure.axes[1].lines)
        < figure.axes[1].get_ylim()[1]
        < 10
    )
    [legend] = figure.legends
    assert legend.get_window_extent().x1 <= figure.bbox.x1 and len(legend.get_texts()) == 5


def test_series_differ_without_colour():
    looks = [look(i) for i in range(12)]
    assert len({(seen.marker, seen.dash) for seen in looks}) == 12
    assert len({seen.hatch for seen in looks[:6]}) == 6, "bars"
    light = [np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)) for colour in COLOURS]
    assert all(abs(a - b) > 0.07 for a, b in pairwise(light))


def test_pareto_lines_join_their_own_points_in_the_order_of_the_series():
    axes = {
        "rule": [{"label": "target"}, {"label": "a"}, {"label": "b"}],
        "level": [
            {"label": "–", "only": {"rule": ["target"]}},
            {"label": "low", "only": {"rule": ["a", "b"]}},
            {"label": "high", "only": {"rule": ["a", "b"]}},
        ],
    }
    figure = {"kind": "pareto", "x": "tokens_per_s", "y": "accuracy", "series": "level"}
    spec = figure_spec(axes, figure | {"lines": "rule", "allocation": ["a", "target"]})
    grid = full_grid(spec)
    ax = drawing(pareto, spec, grid).axes[0]
    joined = [line for line in ax.lines if len(line.get_xdata()) == 2]
    assert [list(line.get_xdata()) for line in joined] == [
        [grid[rule, level].summary.tokens_per_s for level in ("low", "high")] for rule in ("a", "b")
    ]
    single = [line for line in ax.lines if len(line.get_xdata()) == 1]
    points = {line.get_xdata()[0]: line for line in single if line.get_marker() != "None"}
    cell = grid["a", "low"].summary
    point = points[cell.tokens_per_s]
    assert point.get_ydata()[0] == pytest.approx(100 * cell.accuracy)
    spans = [path.vertices for bar in ax.collections for path in bar.get_paths()]
    assert any(np.allclose(span[:, 0], cell.tokens_per_s_ci95) for span in spans)
    markers = Counter(line.get_marker() for line in points.values())
    assert sorted(markers.values()) == [1, 2, 2], "a marker for each line"
    rings = [line for line in points.values() if line.get_markerfacecolor() == "none"]
    assert [markers[ring.get_marker()] for ring in rings] == [1], "a ring hides no point of a line"
    assert sorted(text.get_text() for text in ax.texts) == ["high", "high", "low", "low"]
    same = drawing(pareto, spec, grid | {("a", "high"): grid["a", "low"]}).axes[0]
    named = sorted(text.get_text() for text in same.texts)
    assert named == ["high", "low", "low, high"], "one name above another"
    with pytest.raises(ValueError, match="leave out 'connect'"):
        figure_spec(axes, figure | {"lines": "rule", "connect": ["a"]})


def test_random_allocation_mixes_prompts_not_speeds():
    spec = spec_of("pareto", x="accuracy", y="tokens_per_s", allocation=["SpS", "AR"])
    at = {"Model": "Alpha", "Task": "GSM8K"}
    cells = {"SpS": made_up(speedup=4.0, right=2), "AR": made_up(autoregressive=True, right=4)}
    data = data_of(spec, {("Alpha", method, "GSM8K"): cell for method, cell in cells.items()})
    accuracy, speed = pareto.random_allocation(
        data, at | {"Method": "SpS"}, at | {"Method": "AR"}, steps=3
    )
    draft, target = (cell.summary for cell in cells.values())
    assert accuracy == pytest.approx([100, 75, 50])
    assert (speed[0], speed[2]) == pytest.approx((target.tokens_per_s, draft.tokens_per_s))
    tokens = target.tokens + draft.tokens
    seconds = sum(each.prefill_s + each.decode_s for each in (target, draft))
    assert speed[1] == pytest.approx(tokens / seconds), (
        "half the prompts each: all tokens over all time"
    )
    assert speed[1] < (speed[0] + speed[2]) / 2


def test_bars_have_the_measured_heights_and_a_gap_where_there_is_none():
    """A panel for each metric; what was not asked for has no bar, and is not missing."""
    methods = [{"label": "AR", "only": {"Task": ["GSM8K"]}}, {"label": "SpS"}]
    axes = METHODS | {"Model": METHODS["Model"][:1], "Method": methods}
    columns = ["tau", {"metric": "accuracy", "only": {"Task": ["mini_code"]}}]
    spec = figure_spec(axes, FIGURES["bars"] | {"y": columns})
    grid = full_grid(spec)
    del grid["Alpha", "SpS", "GSM8K"]
    first, second, *_ = drawing(bars, spec, grid).axes
    measured = [("Alpha", "AR", "GSM8K"), ("Alpha", "SpS", "mini_code")]
    taus = [grid[coords].summary.tau for coords in measured]
    assert [bar.get_height() for bar in first.patches] == pytest.approx(taus)
    assert len(second.patches) == 1
    ticks = [[label.get_text() for label in ax.get_xticklabels()] for ax in (first, second)]
    assert ticks == [["GSM8K", "mini_code"], ["mini_code"]]
    crosses = [[line for line in ax.lines if line.get_marker() == "x"] for ax in (first, second)]
    assert [[len(cross.get_xdata()) for cross in panel] for panel in crosses] == [[1], []]


def test_bars_of_a_mean_are_that_of_the_cells_behind_them():
    figure = {"y": "tau", "clusters": "Model", "panels": [], "mean": "Task"}
    spec = spec_of("bars", **figure)
    grid = full_grid(spec)
    [ax] = drawn("bars", grid, **figure).axes
    cells = [grid["Alpha", "SpS", task].summary.tau for task in ("GSM8K", "mini_code")]
    assert ax.patches[2].get_height() == pytest.approx(sum(cells) / 2)


def test_an_interval_is_in_the_axis_unit_and_never_negative():
    spec = table_spec(
        axes={"Model": [{"label": "a"}, {"label": "b"}]}, rows=["Model"], columns=[], mean=None
    )
    cell = with_values(made_up(), tau=2.0, tau_ci95=(2.1, 2.2), recovery=None)
    data = Data(spec, cells_frame(spec, ["accuracy", "tau", "recovery"], {("a",): cell}))
    there, missing = {"Model": "a"}, {"Model": "b"}
    point = data.measured(there, "accuracy")
    assert point.value == 75.0 and point.low < 75 < point.high
    assert min(data.measured(there, "tau").below_above) == 0.0
    assert data.measured(missing, "tau") is data.measured(there, "recovery") is None
    assert data.is_measured(there) and not data.is_measured(missing)


def test_entries_of_one_label_share_a_panel():
    axes = METHODS | {
        "p": [
            {"label": "p", "only": {"Method": ["AR"]}},
            {"label": "p", "only": {"Method": ["SpS", "MARS & co"]}},
            {"label": "other"},
        ]
    }
    spec = figure_spec(axes, FIGURES["pareto"] | {"panels": ["Model", "Task", "p"]})
    first = {**spec.axes, "Task": spec.axes["Task"][:1], "p": spec.axes["p"][2:]}
    alone = spec.model_copy(update={"axes": first})

    def titles(spec, axes, each=1):
        return [title for title, _ in panels(spec, axes, each=each)]

    assert titles(spec, ("p",)) == ["p", "other"]
    assert titles(alone, ("Task", "p")) == ["GSM8K, other"], "the only panel says what it shows"
    assert titles(alone, ("Task", "p"), each=2) == [""]


def test_matrices_and_distributions_show_what_was_compared():
    axes = {"Model": [{"label": "Alpha"}], "Head": [{"label": "H1"}, {"label": "H2"}]}
    common = {"kind": "own", "panels": ["Model"]}
    figure = {"file": "dropmatch_fig3", "series": "Head", "meanings": ["sentence", "entailment"]}
    names = [("Alpha", "H1"), ("Alpha", "H2")]
    grid = {}
    for row in names:
        answers = {
            " / ".join(column): [1.0, 1.0] if row == column else [0.25, 0.75] for column in names
        }
        grid[row] = replace(made_up(), agreement={"sentence": answers})
    cosine, entailment, *_ = drawing(dropmatch_fig3, figure_spec(axes, common | figure), grid).axes
    assert sorted(text.get_text() for text in cosine.texts) == ["0.50", "0.50", "1.00", "1.00"]
    assert [text.get_text() for text in entailment.texts] == ["needs similarity.entailment=MODEL"]
    figure = {"file": "arc_fig2", "meanings": ["bertscore", "sentence", "entailment"]}
    answers = {"bertscore": {"a": [0.5, 0.9], "b": [0.7]}}
    spec = figure_spec({"Model": axes["Model"]}, common | figure)
    first, second, third = drawing(
        arc_fig2, spec, {("Alpha",): replace(made_up(), agreement=answers)}
    ).axes
    assert "contradiction" in third.get_xlabel()
    assert sum(patch.get_data().values.sum() for patch in first.patches) == pytest.approx(200)
    assert sorted(line.get_xdata()[0] for line in first.lines) == pytest.approx([0.7, 0.7])
    assert [text.get_text() for text in second.texts] == ["needs similarity.sentence=MODEL"]


def test_a_baseline_that_depends_on_x_is_a_line_through_its_levels():
    figure = {"kind": "sweep", "x": "theta", "left": "tokens_per_s", "log": True}
    spec = figure_spec({"theta": THETAS}, figure)
    grid = {
        coords: with_values(cell, baseline_tokens_per_s=100.0 * (i + 1))
        for i, (coords, cell) in enumerate(full_grid(spec).items())
    }
    [ax] = drawing(sweep, spec, grid).axes
    _, baseline = lines(ax, 2)
    assert list(baseline.get_ydata()) == [100, 200, 300, 400] and ax.get_xscale() == "log"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.84", "0.88", "0.92", "0.96"]


def test_the_limit_and_the_efficiency_of_each_rule():
    labels = [
        "lossless, T = 1",
        "lossless, T = 0",
        "tilted",
        "tilted more",
        "wasteful",
        "far",
        "absent",
    ]
    altered = {"int8": 0.0001, "Q4_0": 0.0105, "T = 0.7": 0.0112}
    spec = figure_spec(
        {
            "Rule": [
                *(
                    {"label": label, "overrides": ["rule=tilted"] if "tilted" in label else []}
                    for label in labels
                ),
                *({"label": f"target in {name}", "altered": name} for name in altered),
            ]
        },
        {
            "kind": "own",
            "file": "limit",
            "series": "Rule",
            "values": ["distortion", "tau"],
        },
    )
    made = next(iter(full_grid(spec).values())).summary
    points = {
        labels[0]: (0.0, 2.0),
        labels[1]: (0.3, 2.5),
        "tilted": (0.1, 3.0),
        "tilted more": (0.3, 4.0),
        "wasteful": (0.2, 2.75),
        "far": (0.9, 4.0),
    }
    grid = {
        (label,): Outcome.measured(
            made.with_values(
                distortion=x, distortion_ci95=(x, x), tau=y, tau_ci95=(y - 0.2, y + 0.2)
            )
        )
        for label, (x, y) in points.items()
    }
    grid |= {
        (f"target in {name}",): Outcome.measured(made.with_values(distortion=x, tau=None))
        for name, x in altered.items()
    }
    with style():
        data = data_of(spec, grid)
        figure = limit.draw(data)
        figure.draw_without_rendering()
    [ax] = figure.axes
    assert [text.get_text() for text in ax.texts] == ["int8", "Q4_0, T = 0.7"], "near ones share"
    marked = [line.get_xdata()[0] for line in ax.lines if line.get_label() == limit.ALTERED]
    assert marked == pytest.approx([*altered.values()])
    curves = {line.get_label(): line.get_xydata().tolist() for line in ax.lines}
    assert curves[limit.TILTED] == [[0.0, 2.0], [0.1, 3.0], [0.3, 4.0]]
    assert curves["lossless, T from 1 to 0"] == [[0.0, 2.0], [0.3, 2.5]]
    half = 0.2 * np.sqrt(1 + 0.5**2 + 0.5**2) / 1.5
    said = f"wasteful: 50% [{50 - 100 * half:.0f}, {50 + 100 * half:.0f}]"
    named = [text.get_text() for text in ax.get_legend().get_texts()]
    assert named == ["far", said], "0.75 of 1.5; no limit known at 0.9; the highest τ first"
    lines = csv.DictReader(io.StringIO(figure_csv(spec, data.frame)))
    rows = [row for row in lines if row["value_name"] == "efficiency_at_d"]
    assert [row["value"] for row in rows] == ["", "0.25", "1.0", "1.0", "0.5", "", "", "", ""]


def test_names_hide_neither_points_nor_each_other() -> None:
    figure = Figure()
    ax = figure.subplots()
    places = [(0.5 + 0.01 * i, 0.5) for i in range(4)]
    ax.set(xlim=(0, 1), ylim=(0, 1))
    names = [(ax, labels.Name(f"threshold {i}", place, "black")) for i, place in enumerate(places)]
    labels.write(figure, names, [(ax, *place) for place in places])
    boxes = [text.get_window_extent() for text in ax.texts]
    points = ax.transData.transform(places)
    assert len(boxes) == 4
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    assert not any(box.contains(*point) for box in boxes for point in points)
