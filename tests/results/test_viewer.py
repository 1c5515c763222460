"""The data of the answer viewer: how each token came, comparisons of cells, parts inside the page or beside it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from results.metrics.pairwise import Answers, compare_cells, difference, mcnemar_of
from results.reports.page import write_index
from results.reports.viewer.groups import parts_of
from results.reports.viewer.parts import FOLDER, MOST_BYTES, Holder, file_name, script_json
from results.reports.viewer.tokens import by_turn, turns_of
from tests.helpers.viewed_cells import HOSTILE, answer, group, texts, traces


def test_tokens_of_a_trace(tmp_path) -> None:
    one = answer("a", [0, 1, 2, 3, 4, 5, 6, 7], 1.0)
    [turn] = turns_of(one, by_turn(traces(tmp_path, [one]).frame(), texts), texts)
    assert turn["k"] == "dsrdadss" and turn["c"] == [3, 2, 2]
    assert turn["t"][0] == "<b>" and turn["t"][5] == "\\x1b[31mred \\u202eright to left", "nothing steers the reader"
    assert turn["m"][0] == [], "the first token comes from the prefill, which no trace records"
    p, most, _, q, u, score, refused, target, draft = turn["m"][2]
    assert (p, most, q, u, score, refused, draft) == (0.1, 0.4, 0.3, 0.25, 0.8, [], [])
    assert target == [" the", 0.4, " a", 0.05]
    assert turn["m"][3][6] == [" 4", 0.01, 0.2], "what was rejected stands at the token drawn in its place"
    assert turn["m"][3][3] is None, "NaN: no draft probability"


def test_tokens_without_a_trace_and_of_another_one(tmp_path) -> None:
    one = answer("a", [0, 1, 2, 3, 4, 5, 6, 7], 1.0)
    [turn] = turns_of(one, {}, texts)
    assert turn["k"] == "dkkdkdkk" and "m" not in turn
    other = answer("a", [0, 1, 2, 3, 4, 5, 6, 6], 1.0)
    assert turns_of(other, by_turn(traces(tmp_path, [one]).frame(), texts), texts)[0]["k"] == "dkkdkdkk"


@given(st.lists(st.integers(0, 1), min_size=1, max_size=40), st.data())
def test_buckets_and_p_value_agree_with_scipy(scores, data) -> None:
    others = data.draw(st.lists(st.integers(0, 1), min_size=len(scores), max_size=len(scores)))
    left, right = (Answers({str(i): answer(str(i), [0, 1], float(score), cycles=False)
                            for i, score in enumerate(side)}, {}) for side in (scores, others))
    found = compare_cells(left, right)
    assert found.lost == sum(a > b for a, b in zip(scores, others, strict=True))
    assert found.won == sum(a < b for a, b in zip(scores, others, strict=True))
    split = found.lost + found.won
    wanted = stats.binomtest(found.lost, split).pvalue if split else 1.0
    assert found.p == pytest.approx(wanted)
    back = compare_cells(right, left)
    assert (back.lost, back.won, back.p) == (found.won, found.lost, found.p)


def test_paired_differences_agree_with_scipy(tmp_path) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.normal(size=(17, 2))
    found = difference([tuple(pair) for pair in pairs])
    wanted = stats.ttest_rel(pairs[:, 1], pairs[:, 0]).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
    cells = group(tmp_path).cells
    beside = compare_cells(cells[0].answers, cells[1].answers)
    assert beside.seconds.n == 3 and beside.seconds.mean == pytest.approx(-0.9), "the clock of the cell's own rotation"
    same = compare_cells(cells[1].answers, cells[2].answers)
    assert same.seconds.mean == 0 and same.seconds.n == 3 and same.lost == same.won == 0 and same.p == 1
    assert difference([]) is None and difference([(1.0, 3.0)]).low is None
    assert compare_cells(Answers({"x": answer("x", [0], 0.5)}, {}), Answers({"x": answer("x", [0], 1.0)}, {})).p is None
    assert mcnemar_of(0, 0) == 1.0


def test_parts_hold_every_answer(tmp_path) -> None:
    one = group(tmp_path, n=70)
    parts = parts_of([one])
    [entry] = parts["index"]["groups"]
    assert [cell["traced"] for cell in entry["cells"]] == [False, True, False] and entry["binary"]
    assert entry["cells"][1]["threshold"] == {"name": "theta", "relation": ">", "value": 0.5}
    lengths = [length for _, length, *_ in entry["cells"][1]["replay"]]
    assert lengths == sorted(lengths, reverse=True), "a higher threshold keeps less"
    chunks = [parts[f"answers:base-1:{i}"] for i in range(3)]
    assert [len(chunk) for chunk in chunks] == [32, 32, 6] == [len(parts[f"prompts:base:{i}"]) for i in range(3)]
    assert len(parts["rows:base-1"]) == 70 and parts["rows:base-1"][0][:3] == [1.0, 8, 3]
    assert set(parts["compare:base"]) == {"0 1", "0 2", "1 2"}


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=30), max_size=3))
def test_json_in_a_script_stays_there(data) -> None:
    text = script_json(data)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == data


def test_large_parts_lie_in_a_folder(tmp_path) -> None:
    texts, folder = {name: script_json(data) for name, data in parts_of([group(tmp_path)]).items()}, tmp_path / "page"
    inside = "".join(Holder(folder, 0).elements(texts))
    assert inside.count("data-part=") == len(texts) and not folder.exists()
    [beside] = Holder(folder, MOST_BYTES + 1).elements(texts)
    assert beside == f'<script type="application/json" data-folder="{FOLDER}">{{}}</script>'
    assert {path.name for path in (folder / FOLDER).iterdir()} == {f"{file_name(name)}.js" for name in texts}
    assert "".join(Holder(folder, 0).elements(texts)) == inside and not list((folder / FOLDER).iterdir())


def test_hostile_text_stays_text(tmp_path) -> None:
    page = write_index(tmp_path, [], {}, groups=[group(tmp_path)]).read_text()
    assert HOSTILE not in page and "\x1b" not in page and "\u202e" not in page
    assert len(re.findall("<script", page)) == page.count("</script>"), "no text opens or ends a script"
