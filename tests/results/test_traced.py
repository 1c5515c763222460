"""What tables and figures read off a trace, by hand; and differences between the rows of a
table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from plots import traced
from plots.render import data_of, render
from plots.style import style
from results.metrics.trace_metrics import quantities, trace_metrics
from results.reports.grid import Outcome
from results.store.cells import Store
from results.store.errors import StoreError
from results.store.traces import Threshold, TraceFolder
from tests.helpers.synthetic_cells import figure_spec, made_up

N = 6
TREE = {
    "turn": 0,
    "cycle": [0, 0, 0, 0, 1, 1],
    "node": [1, 2, 3, -1, 1, -1],
    "parent": [0, 0, 1, 2, 0, 0],
    "depth": [1, 1, 2, 2, 1, 1],
    "rank": [0, 1, 0, 0, 0, 0],
    "clause": ["rejected", "relaxed", "unreached", "drawn", "rejected", "drawn"],
    "token": np.arange(N),
}
"""Two cycles: of two siblings the second is kept, and the child of the first is never reached; then
one is rejected."""
NUMBERS = {
    "z1": np.arange(2.0, 8.0),
    "z2": np.arange(1.0, 7.0),
    "p1": np.full(N, 0.5),
    "p2": np.full(N, 0.25),
    "js": [0.1, 0.1, 0.2, np.nan, 0.5, 0.3],
    "by_threshold": [False, True, False, False, False, False],
}
DIAL = {
    "accept": [False, True, True, False, False, False],
    "strict": [False] * N,
    "score": [0.2, 0.8, 0.9, np.nan, 0.5, np.nan],
    "inside": [True, True, True, False, True, False],
    "outside": [False] * N,
}
DROPOUT = {
    "majority": [5, 5, 3, np.nan, 3, np.nan],
    "majority_p": [0.9, 0.9, 0.5, np.nan, 0.4, np.nan],
    "votes": [5, 0, 1, np.nan, 3, np.nan],
    "js_centroid": [0.3, 0.01, 0.1, np.nan, 0.02, np.nan],
    "js_heads": [0.1, 0.02, 0.1, np.nan, 0.03, np.nan],
    "js_heads_max": [0.2, 0.04, 0.1, np.nan, 0.05, np.nan],
}


@pytest.fixture
def traces(tmp_path) -> TraceFolder:
    folder = TraceFolder(Store(tmp_path).cell("cell"))
    columns = {"prompt": "a", **TREE, **NUMBERS, **DIAL, **DROPOUT}
    folder.add(
        ["a", "empty"],
        [columns, {"prompt": "empty", "token": np.array([], int)}],
        Threshold("theta", ">", 0.7),
    )
    folder.add(["b"], [{"prompt": "b", **TREE, **NUMBERS}], None)
    return folder


def test_rows_do_not_depend_on_which_batch_was_done_first(tmp_path):
    batches = [("a", "b"), ("c",)]
    frames = []
    for name, order in (("one", batches), ("other", batches[::-1])):
        folder = TraceFolder(Store(tmp_path).cell(name))
        for prompts in order:
            folder.add(prompts, [{"prompt": prompt, **TREE, **NUMBERS} for prompt in prompts], None)
        frames.append(folder.frame(["prompt", "cycle", "node"]))
    pd.testing.assert_frame_equal(*frames)
    assert frames[0].prompt.unique().tolist() == ["a", "b", "c"]


def test_parts_are_read_as_one_table(traces) -> None:
    frame = traces.frame()
    assert len(frame) == 2 * N and frame["score"].isna().sum() == N + 2
    assert set(frame["prompt"]) == {"a", "b"}
    assert traces.prompts(0) == ["a", "empty"] and traces.prompts(2) is None
    assert traces.threshold() == Threshold("theta", ">", 0.7)
    traces.part(1).write_bytes(b"torn")
    with pytest.raises(StoreError, match=r"00001\.parquet is no trace"):
        traces.prompts(1)


def test_quantities_and_table_numbers_by_hand(traces) -> None:
    emitted = quantities(traces, ("ratio", "prob_ratio"))
    assert len(emitted) == 6 and set(emitted["prob_ratio"]) == {0.5}
    assert emitted["ratio"].iloc[0] == pytest.approx(2 / 3)
    assert emitted["by_threshold"].tolist() == [True, False, False] * 2
    assert quantities(traces, ("js",))["js"].tolist() == pytest.approx([0.1, 0.5, 0.1, 0.5])
    with pytest.raises(ValueError, match="js, z1: one panel cannot show both"):
        quantities(traces, ("js", "z1"))
    traces.part(1).unlink()
    found = made_up().summary.with_values(**trace_metrics([traces], {"a": 10, "b": 10}, 1.0))
    by_hand = {
        "majority_5": 0.5,
        "majority_3": 0.5,
        "majority_4": 0.0,
        "majority_p_3": 0.4,
        "majority_p_4": None,
        "js_dispersed_share": 2 / 3,
        "js_dispersed_draft": (0.01 + 0.02) / 2,
        "js_concentrated_draft": 0.3,
        "js_concentrated_heads": 0.1,
    }
    assert {name: found.value(name) for name in by_hand} == pytest.approx(by_hand)


def test_a_figure_of_traces(traces, tmp_path) -> None:
    views = [
        {"x": "z1", "mark": 0},
        {"x": "z1", "y": "z2", "points": "by_threshold"},
        {"x": "js", "x_range": [0, 0.3]},
        {"x": "ratio", "y": "prob_ratio", "points": "tested", "x_range": [0.5, 1.0]},
    ]
    axes = {"Model": [{"label": "Alpha"}, {"label": "Beta"}]}
    figure = {"kind": "traced", "panels": ["Model"], "views": views}
    spec = figure_spec(axes, figure, trace=True)
    grid = {("Alpha",): Outcome.measured(made_up().summary, traces), ("Beta",): Outcome.missing()}
    with style():
        histogram, cloud, *_ = traced.draw(data_of(spec, grid)).axes
    assert sum(bar.get_height() for bar in histogram.patches) == pytest.approx(100)
    assert histogram.lines[0].get_xdata()[0] == 0
    assert len(cloud.lines[0].get_xdata()) == 2
    _, _, svg_path, _ = render(spec, grid, tmp_path)
    svg = svg_path.read_text()
    for label in ("tested draft tokens", "accepted (2)", "rejected (4)", "kept by relaxation (2)"):
        assert svg.count(label) == 1, label
    assert svg.count("no traced positions") == 4
    with pytest.raises(ValueError, match="unknown quantity"):
        figure_spec(axes, figure | {"views": [{"x": "z3"}]}, trace=True)
