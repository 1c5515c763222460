"""Answers token by token: the data of a page."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from bench.run.console import SoFar
from results.reports.answers import SHOWN, by_turn, parts_of, turns_of
from results.reports.page import write_index
from tests.helpers.synthetic_cells import sample
from tests.helpers.viewed_cells import HOSTILE, answer, group, texts, traces


def test_tokens_of_a_trace(tmp_path) -> None:
    one = answer("a", [0, 1, 2, 3, 4, 5, 6, 7], 1.0)
    [turn] = turns_of(one, by_turn(traces(tmp_path, [one]).frame(), texts), texts)
    assert turn["k"] == "dsrdadss" and turn["c"] == [3, 2, 2]
    assert turn["t"][0] == "<b>" and turn["t"][5] == "\\x1b[31mred \\u202eright to left", (
        "nothing steers the reader"
    )
    assert turn["m"][0] == [], "the first token comes from the prefill, which no trace records"
    p, most, _, q, u, score, refused, target, draft = turn["m"][2]
    assert (p, most, q, u, score, refused, draft) == (0.1, 0.4, 0.3, 0.25, 0.8, [], [])
    assert target == [" the", 0.4, " a", 0.05]
    assert turn["m"][3][6] == [" 4", 0.01, 0.2], (
        "what was rejected stands at the token drawn in its place"
    )
    assert turn["m"][3][3] is None, "NaN: no draft probability"


def test_tokens_without_a_trace_and_of_another_one(tmp_path) -> None:
    one = answer("a", [0, 1, 2, 3, 4, 5, 6, 7], 1.0)
    [turn] = turns_of(one, {}, texts)
    assert turn["k"] == "dkkdkdkk" and "m" not in turn
    other = answer("a", [0, 1, 2, 3, 4, 5, 6, 6], 1.0)
    assert (
        turns_of(other, by_turn(traces(tmp_path, [one]).frame(), texts), texts)[0]["k"]
        == "dkkdkdkk"
    )


def test_parts_hold_the_first_answers_of_each_cell(tmp_path) -> None:
    parts = dict(parts_of([group(tmp_path, n=SHOWN + 8)]))
    [entry] = parts["index"]
    assert [cell[2] for cell in entry["cells"]] == ["", "theta > 0.5", ""] and len(
        entry["prompts"]
    ) == SHOWN
    assert set(parts) == {"index", *(key for key, _, _ in entry["cells"])}
    assert all(len(parts[key]) == SHOWN for key, _, _ in entry["cells"])
    assert ["m" in parts[key][0]["turns"][0] for key, _, _ in entry["cells"]] == [
        False,
        True,
        False,
    ]


def test_hostile_text_stays_text(tmp_path) -> None:
    page = write_index(tmp_path, [], {}, groups=[group(tmp_path)]).read_text()
    assert HOSTILE not in page and "\x1b" not in page and "\u202e" not in page
    assert len(re.findall("<script", page)) == page.count("</script>"), (
        "no text opens or ends a script"
    )


CELLS = st.lists(st.lists(st.integers(1, 6), max_size=5), max_size=4)


@given(CELLS, CELLS)
def test_counts_add_up(left: list[list[int]], right: list[list[int]]) -> None:
    first, second, both = (
        SoFar.of([sample("a", [1] * (1 + sum(cycles)), committed=cycles) for cycles in cell])
        for cell in (left, right, left + right)
    )
    assert first.plus(second) == both
    lengths = [length for cycles in left + right for length in cycles]
    assert both.tau == (sum(lengths) / len(lengths) if lengths else None)
    assert both.answers == len(left + right) and both.tokens == both.answers + sum(lengths)
