"""Coloured answers for other people's pages: escaped, shaded by the trace, in the colours of our own page."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from results.metrics.adds import SoFar
from results.reports import tokens as module
from results.reports.tokens import KINDS, answers_page, coloured
from tests.helpers.synthetic_cells import sample

PAGE = Path(module.__file__).parent / "templates" / "index.css"


def turn(texts: list[str], kinds: str, numbers=None) -> dict:
    return {"t": texts, "k": kinds, "c": []} | ({} if numbers is None else {"m": numbers})


def test_texts_are_escaped() -> None:
    html = coloured([turn(["<b>", "\"'&"], "ds")])
    assert "<b>" not in html and "&lt;b&gt;" in html and "&quot;&#x27;&amp;" in html
    page = answers_page(["id"], [(["<i>"], html), ([None], html)])
    assert "<i>" not in page and page.count("<tr>") == 3


def test_a_relaxed_token_is_darker_the_less_likely_it_was() -> None:
    html = coloured([turn(["a", "b", "c"], "rrr", [[0.5, 0.5], [0.1, 0.5], []])])
    alphas = [float(alpha) for alpha in re.findall(r"rgba\(213,94,0,([\d.]+)\)", html)]
    assert alphas == [0.25, 0.73, 0.43]  # 0.25 + 0.6 (1 − p ÷ max p); 0.3 where it is not known
    assert "p = 0.1, max p = 0.5" in html


def test_colours_are_those_of_the_page() -> None:
    css = PAGE.read_text()
    for colour in re.findall("#[0-9a-f]{6}", " ".join(style for style, _ in KINDS.values())):
        assert colour in css
    red, green, blue = (int("d55e00"[i:i + 2], 16) for i in (0, 2, 4))
    assert f"rgba({red},{green},{blue}," in KINDS["r"][0]


CYCLES = st.lists(st.integers(1, 6), max_size=5)


@settings(deadline=None)
@given(st.lists(CYCLES, max_size=4), st.lists(CYCLES, max_size=4))
def test_counts_add_up(left: list[list[int]], right: list[list[int]]) -> None:
    first, second = ([sample(f"{i}", [1] * (1 + sum(cycles)), committed=cycles, accepted=[0] * len(cycles))
                      for i, cycles in enumerate(one)] for one in (left, right))
    both = SoFar.of([*first, *second])
    assert SoFar.of(first).plus(SoFar.of(second)) == both
    lengths = [length for cycles in (*left, *right) for length in cycles]
    assert both.tau == (sum(lengths) / len(lengths) if lengths else None)
    assert both.answers == len(left) + len(right) and both.tokens == both.answers + sum(lengths)
