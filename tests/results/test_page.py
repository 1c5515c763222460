"""The page of a run holds everything and asks for nothing."""

import base64
import re
from html.parser import HTMLParser

import pytest
from markupsafe import Markup

from plots.render import render
from results.reports.formats import render_table
from results.reports.grid import Outcome
from results.reports.page import Item, write_index
from results.reports.spec import FigureSpec
from results.reports.viewer import parts
from results.reports.viewer.parts import FOLDER
from tests.helpers.synthetic_cells import full_grid, table_spec

FIGURE = {
    "name": "picture", "title": "A <picture>", "kind": "figure", "axes": table_spec().model_dump()["axes"],
    "figure": {"kind": "bars", "y": "speedup", "clusters": "Task", "series": "Method", "panels": ["Model"]},
}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.urls, self.open, self.tags = [], [], [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "xlink:href"):
                self.urls.append(value)
        if tag not in ("meta", "img", "br", "path", "use", "rect", "circle", "image"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open and tag == self.open[-1]:
            self.open.pop()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("page")
    table, figure = table_spec(), FigureSpec.model_validate(FIGURE)
    grid = full_grid(table)
    grid["Alpha", "SpS", "GSM8K"] = Outcome.failed("no & memory")
    items = [
        Item(table, grid, render_table(table, grid, tmp_path)),
        Item(figure, grid, render(figure, grid, tmp_path)),
        Item(figure.model_copy(update={"name": "second"}), grid, render(figure, grid, tmp_path)),
    ]
    environment = {"argv": ["-m", "bench"], "machine": {"cores": 2, "gpu": None}, "note": "<b>"}
    return write_index(tmp_path, items, environment).read_text()


def test_it_is_whole_and_asks_for_nothing_outside(page):
    parsed = Page()
    parsed.feed(page)
    assert parsed.open == []
    assert {"table", "svg", "style", "nav", "dl"} <= parsed.tags and not {"link", "iframe"} & parsed.tags
    assert all(url.startswith(("#", "data:")) for url in parsed.urls), parsed.urls
    assert not re.search(r"url\((?!#)|@import", page)
    assert len(parsed.ids) == len(set(parsed.ids)), "two figures on one page stay apart"
    assert {url[1:] for url in parsed.urls if url.startswith("#")} <= set(parsed.ids)


def test_it_says_what_is_missing_and_where_it_ran(page):
    missing = page[page.index('id="missing"'):page.index('id="metrics"')]
    assert missing.count("<b>Alpha / SpS / GSM8K</b> failed: no &amp; memory") == 3
    environment = page[page.index('id="environment"'):]
    for wanted in ("machine · cores", "<dd>2</dd>", "<dd>unknown</dd>", "-m bench", "&lt;b&gt;"):
        assert wanted in environment


def test_it_defines_the_metrics_it_shows(page):
    metrics = page[page.index('id="metrics"'):page.index('id="environment"')]
    assert "Speedup (×)" in metrics and "Student" in metrics and "1 ≤ τ ≤ K + 1" in metrics
    assert "McNemar" not in metrics


def test_the_files_travel_with_the_page(page):
    found = dict(re.findall(r'download="(\S+)" href="data:[^;]+;base64,([^"]+)"', page))
    assert {"demo.md", "demo.tex", "demo.csv", "picture.png", "picture.pdf", "picture.svg"} <= set(found)
    assert base64.b64decode(found["demo.csv"]).startswith(b"report,Model,Method,Task,value_name")
    assert base64.b64decode(found["picture.png"]).startswith(b"\x89PNG")


def test_a_full_run_misses_nothing_and_an_empty_one_says_so(tmp_path):
    spec = table_spec()
    text = write_index(tmp_path, [Item(spec, full_grid(spec))], {}).read_text()
    assert "None: every cell of this report was measured." in text and "No environment was recorded." in text
    assert "No report was rendered." in write_index(tmp_path, [], {}).read_text()


def test_what_follows_an_opening_is_folded(tmp_path, monkeypatch):
    """Each section behind its heading; a report also says its conclusion there."""
    monkeypatch.setattr(Item, "conclusion", "It gains.")
    item, parsed = Item(table_spec(), full_grid(table_spec())), Page()
    assert "fold" not in write_index(tmp_path, [item], {}).read_text().partition("<body>")[2].partition("<script")[0]
    page = write_index(tmp_path, [item], {}, opening=Markup("<section>first</section>")).read_text()
    parsed.feed(page)
    heads = re.findall(r'<section id="(\w+)">\s*<details class="fold"><summary><h2>', page)
    assert heads == ["demo", "missing", "metrics", "environment"] and parsed.open == []
    assert page.index('id="demo"') < page.index("It gains.") < page.index("</summary>", page.index('id="demo"'))


def test_a_figure_that_was_not_drawn_says_so(tmp_path):
    text = write_index(tmp_path, [Item(FigureSpec.model_validate(FIGURE), {})], {}).read_text()
    assert "The figure was not drawn." in text and "A &lt;picture&gt;" in text


def test_the_limit_counts_the_whole_page(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, drawings and files count as answers do; what is small stays in the page."""
    table, figure = table_spec(), FigureSpec.model_validate(FIGURE)
    grid = full_grid(table)
    items = [Item(table, grid, render_table(table, grid, tmp_path)), Item(figure, grid, render(figure, grid, tmp_path))]
    whole = write_index(tmp_path, items, {}).read_text()
    assert not (tmp_path / FOLDER).exists()
    monkeypatch.setattr(parts, "LARGE", 10_000)
    monkeypatch.setattr(parts, "MOST_BYTES", len(whole) - 100_000)
    page = write_index(tmp_path, items, {}).read_text()
    assert len(page) < len(whole) / 2
    assert f'<img src="{FOLDER}/picture.png"' in page and "<svg" not in page
    linked = set(re.findall(f'(?:href|src)="{FOLDER}/([^"]+)"', page))
    assert {"picture.png", "picture.svg"} <= linked and "demo.md" not in linked
    assert {path.name for path in (tmp_path / FOLDER).iterdir()} == linked | {"facts.js"}
    assert all((tmp_path / FOLDER / name).read_bytes() == (tmp_path / name).read_bytes() for name in linked)
    monkeypatch.setattr(parts, "MOST_BYTES", len(whole))
    assert write_index(tmp_path, items, {}).read_text() == whole and not list((tmp_path / FOLDER).iterdir())
