"""The page in a headless Chromium, opened from its file: open, choose, filter, search, point at a token, compare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from markupsafe import Markup

from results.reports.formats import render_table
from results.reports.grid import Outcome
from results.reports.page import Item, write_index
from results.reports.viewer import parts
from tests.helpers import browser
from tests.helpers.synthetic_cells import full_grid, table_spec
from tests.helpers.viewed_cells import HOSTILE, group

pytestmark = pytest.mark.slow
READY = "document.getElementById('answers')?.dataset.ready"
RIGHT = "#answers .sides article:last-child"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    with browser.page(tmp_path_factory.mktemp("profile")) as tab:
        tab.look()
        yield tab


@pytest.fixture(params=["one file", "a folder beside it"])
def opened(request, tab: browser.Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> browser.Page:
    """Two groups of cells, 100 answers in the first one, from file://."""
    if request.param != "one file":
        monkeypatch.setattr(parts, "MOST_BYTES", 0)
    groups = [group(tmp_path, "base", n=100), group(tmp_path, "other", n=3, cells=2)]
    tab.open(write_index(tmp_path / "page", [], {"argv": ["bench"]}, groups=groups).as_uri())
    tab.wait(READY)
    return tab


def test_open_choose_filter_search_and_point(opened: browser.Page) -> None:
    tab = opened
    assert tab.errors == [] and all(url.startswith(("file:", "data:")) for url in tab.requests)
    assert tab.run("document.querySelectorAll('#answers .prompts li').length") == 100
    assert "method <1>" in tab.text(RIGHT), "the method stands right of the baseline"
    kinds = tab.run(f"[...document.querySelectorAll('{RIGHT} .token')].map(one => one.className.split(' ')[1])")
    assert kinds == ["drawn", "strict", "relaxed", "drawn", "argmax", "drawn", "strict", "strict"]
    assert tab.run("document.querySelectorAll('#answers .sides .parts').length") == 2, "where the answers part"
    bars = tab.run(f"[...document.querySelectorAll('{RIGHT} .cycles span')].map(one => one.children.length)")
    assert bars == [3, 2, 2]

    tab.hover(f"{RIGHT} .token:nth-of-type(3)")
    tab.wait("!document.querySelector('.card').hidden")
    card = tab.text(".card")
    assert "relaxed" in card and "p(x) ÷ max p\n0.25" in card and "cycle\n1" in card and "theta" in card
    tab.run(f"document.querySelector('{RIGHT} .token').focus()")
    for _ in range(3):
        tab.press("ArrowRight")
    assert "rejected here: ␣4 p 0.01, q 0.2" in tab.text(".card"), "keys reach what the mouse reaches"
    tab.press("Escape")
    assert tab.run("document.querySelector('.card').hidden")

    lists = tab.text("#answers .lists")
    assert "Lost 33" in lists and "Won 17" in lists and "Both right 17" in lists and "Both wrong 33" in lists
    tab.click("#answers .lists button:nth-child(3)")
    tab.wait("document.querySelectorAll('#answers .prompts li').length === 17")
    tab.choose("[data-role=search]", "QUESTION 42:")
    tab.wait("document.querySelectorAll('#answers .prompts li').length === 1")
    tab.wait("document.querySelector('#answers .prompt').innerText.includes('question 42')")
    tab.choose("[data-role=search]", "")
    tab.wait("document.querySelectorAll('#answers .prompts li').length === 17")
    assert tab.errors == []


def test_compare_two_cells(opened: browser.Page) -> None:
    tab = opened
    summary = tab.text("#answers .summary")
    assert "p = 0.0328" in summary and "method <1> minus ar" in summary and "−0.9" in summary
    tab.choose("[data-role=left]", "1")
    tab.choose("[data-role=right]", "2")
    tab.wait("document.querySelector('#answers .summary').innerText.includes('method <2> minus method <1>')")
    tab.wait(f"document.querySelector('{RIGHT}').innerText.includes('identical')")
    assert "p = 1" in tab.text("#answers .summary")
    tab.click("[data-role=swap]")
    tab.wait("document.querySelector('#answers .summary').innerText.includes('method <1> minus method <2>')")
    tab.choose("[data-role=group]", "1")
    tab.wait("document.querySelectorAll('#answers .prompts li').length === 3")
    tab.wait("location.hash.startsWith('#answers/other/')")
    assert tab.errors == []


def test_hostile_text_does_nothing(opened: browser.Page) -> None:
    tab = opened
    assert tab.run("document.title") == "Leeway" and tab.run("document.querySelectorAll('#answers img').length") == 0
    assert HOSTILE in tab.run("document.querySelector('#answers .prompt').textContent")
    assert "\\u202e" in tab.run(f"document.querySelector('{RIGHT}').textContent")


def test_threshold_slider(opened: browser.Page) -> None:
    tab = opened
    assert "theta = 0.5" in tab.text("#answers .replay output") and "as traced" in tab.text("#answers .replay output")
    tab.choose("#replay-value", "20")
    assert "as traced" not in tab.text("#answers .replay output")


@pytest.fixture
def table(tab: browser.Page, tmp_path: Path) -> browser.Page:
    """A page with a table of a failed cell, and the answers of one of its cells."""
    spec = table_spec(mean=None)
    grid = full_grid(spec) | {("Alpha", "SpS", "GSM8K"): Outcome.failed("no & memory")}
    item = Item(spec, grid, render_table(spec, grid, tmp_path / "page"),
                cells={coords: ("base-1", "python -m bench <method>") for coords in grid})
    tab.open(write_index(tmp_path / "page", [item], {}, groups=[group(tmp_path, n=3)]).as_uri())
    tab.wait(f"{READY} && document.documentElement.dataset.tables")
    return tab


def labels(tab: browser.Page) -> list[str]:
    """`model method` of the rows in view."""
    return tab.run("[...document.querySelectorAll('#demo tbody tr')].filter(row => !row.hidden)"
                   ".map(row => [...row.querySelectorAll('th')].map(th => th.textContent).join(' '))")


def test_sort_and_filter_a_table(table: browser.Page) -> None:
    tab, head = table, "#demo thead tr:last-child th.num:nth-child(2)"
    printed = labels(tab)
    assert printed == ["Alpha AR", " SpS", " MARS & co", "Beta AR", " SpS", " MARS & co"]
    tab.click(head)
    assert labels(tab) == ["Alpha MARS & co", "Beta SpS", "Beta MARS & co", "Alpha AR", "Beta AR", "Alpha SpS"], \
        "τ of GSM8K, descending; the failed cell is last"
    tab.run(f"document.querySelector('{head}').focus()")
    tab.press("Enter")
    assert labels(tab)[:2] == ["Alpha AR", "Beta AR"] and labels(tab)[-1] == "Alpha SpS"
    tab.press("Enter")
    assert labels(tab) == printed
    tab.choose("#demo .tools input[type=search]", "beta mars")
    assert labels(tab) == [" MARS & co"] and "1 of 6 rows" in tab.text("#demo .tools")
    tab.choose("#demo .tools input[type=search]", "")
    for i in (0, 1):
        tab.run(f"document.querySelectorAll('#demo .tools input[type=checkbox]')[{i}].click()")
    assert "GSM8K" not in tab.text("#demo thead") and "failed" not in tab.text("#demo tbody")
    assert tab.errors == []


def test_the_whole_table_is_behind_a_click(tab: browser.Page, tmp_path: Path) -> None:
    spec = table_spec()
    tab.open(write_index(tmp_path / "page", [Item(spec, full_grid(spec))], {}).as_uri())
    tab.wait("document.documentElement.dataset.tables")
    shown = "[...document.querySelectorAll('#demo thead th')].filter(head => head.checkVisibility()).length"
    few = tab.run(shown)
    tab.click("#demo details.whole > summary")
    assert few == 2 + 3 and tab.run(shown) == few + 2 + 3 + 6, "stub and spans, then the columns under the spans"
    assert tab.errors == []


def test_a_link_and_a_printer_open_what_is_folded(tab: browser.Page, tmp_path: Path) -> None:
    spec, seen = table_spec(), "document.querySelector('#demo table').checkVisibility()"
    opening = Markup("<section id='overview'><h2>first</h2></section>")
    tab.open(write_index(tmp_path / "page", [Item(spec, full_grid(spec))], {}, opening=opening).as_uri())
    tab.wait("document.documentElement.dataset.tables")
    assert not tab.run(seen)
    tab.run("dispatchEvent(new Event('beforeprint'))")
    assert tab.run(seen)
    tab.run("dispatchEvent(new Event('afterprint'))")
    assert not tab.run(seen)
    tab.click("nav summary")  # the contents are folded, too
    tab.click("nav a[href='#demo']")
    tab.wait(seen)
    assert tab.errors == []


def test_facts_behind_a_number(table: browser.Page) -> None:
    tab, cell = table, "#demo tbody tr:nth-child(6) td:nth-of-type(3)"
    tab.hover(cell)
    tab.wait("!document.querySelector('.card').hidden")
    card = tab.text(".card")
    assert "Beta / MARS & co / mini_code" in card and "95% interval" in card and "n\n4" in card and "timed\n4" in card
    assert "python -m bench <method>" in card
    tab.look(width=1100)
    tab.wait("document.querySelector('.card').hidden")  # its number has moved
    tab.look()
    tab.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # a resize hides the card
    tab.run("document.querySelector('#demo td[data-point]').focus()")
    tab.press("ArrowDown")
    tab.wait("document.querySelector('.card').innerText.startsWith('failed')")
    tab.press("ArrowRight")
    assert "Alpha / SpS / mini_code" in tab.text(".card")
    tab.click(cell)
    tab.wait("location.hash.startsWith('#answers/base/base/base-1')")


def test_copy_a_table(table: browser.Page) -> None:
    tab = table
    tab.run("navigator.clipboard.writeText = async text => { window.copied = text; }")
    for place, wanted in ((1, "| Model"), (2, "{tabular}"), (3, "report,Model,Method,Task")):
        tab.click(f"#demo .tools button:nth-of-type({place})")
        tab.wait(f"window.copied?.includes('{wanted}')")
    assert tab.errors == []
