"""The page of a run: it holds everything, asks for nothing, and opens with what was asked for."""

import base64
import re
from html.parser import HTMLParser

import pytest

from plots.render import render
from results.reports import page as module
from results.reports.formats import render_table
from results.reports.grid import Outcome
from results.reports.page import Item, without_folders, write_index
from tests.helpers.synthetic_cells import figure_spec, full_grid, table_spec
from tests.helpers.viewed_cells import group

FIGURE = figure_spec(
    table_spec().model_dump()["axes"],
    {
        "kind": "bars",
        "y": "speedup",
        "clusters": "Task",
        "series": "Method",
        "panels": ["Model"],
    },
    name="picture",
    title="A <picture>",
)


class Page(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.ids, self.urls, self.open, self.tags = [], [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.urls += [value for name, value in attrs if name in ("href", "src", "xlink:href")]
        if tag not in ("meta", "img", "br", "path", "use", "rect", "circle", "image"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open and tag == self.open[-1]:
            self.open.pop()


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    """A table with a failed cell, and a figure twice."""
    folder = tmp_path_factory.mktemp("files")
    table = table_spec()
    grid = full_grid(table) | {("Alpha", "SpS", "GSM8K"): Outcome.failed("no & memory")}
    return [
        Item(table, grid, render_table(table, grid, folder)),
        Item(FIGURE, grid, render(FIGURE, grid, folder)),
        Item(FIGURE.model_copy(update={"name": "second"}), grid, render(FIGURE, grid, folder)),
    ]


@pytest.fixture(scope="module")
def page(items, tmp_path_factory):
    environment = {"argv": ["-m", "bench"], "machine": {"cores": 2, "gpu": None}, "note": "<b>"}
    folder = tmp_path_factory.mktemp("page")
    made = write_index(folder / "page", items, environment, groups=[group(folder, n=3)])
    assert [*made.parent.iterdir()] == [made] and made.name == "index.html"
    return made.read_text()


def test_it_is_whole_and_asks_for_nothing_outside(page):
    parsed = Page(page)
    assert parsed.open == []
    assert {"table", "svg", "style", "dl"} <= parsed.tags and not {"link", "iframe"} & parsed.tags
    assert all(url.startswith(("#", "data:")) for url in parsed.urls), parsed.urls
    assert not re.search(r"url\((?!#)|@import", page)
    assert len(parsed.ids) == len(set(parsed.ids)), "two figures on one page stay apart"
    assert {url[1:] for url in parsed.urls if url.startswith("#")} <= set(parsed.ids)


def test_it_opens_with_what_was_asked_for(page, items, tmp_path):
    """Then come the answers; missing cells, metrics and environment are folded."""
    found = re.findall(r'<section id="(\w+)">(<details)?(.*?)</section>', page, re.DOTALL)
    assert [f"{name} {fold}" for name, fold, _ in found] == [
        *("demo ", "picture ", "second ", "answers "),
        *("missing <details", "metrics <details", "environment <details"),
    ]
    sections = {name: text for name, _, text in found}
    assert sections["missing"].count("<b>Alpha / SpS / GSM8K</b> failed: no &amp; memory") == 3
    metrics, environment = sections["metrics"], sections["environment"]
    for words in ("machine · cores", "<dd>2</dd>", "<dd>unknown</dd>", "-m bench", "&lt;b&gt;"):
        assert words in environment
    assert "Speedup (×)" in metrics and "Student" in metrics and "1 ≤ τ ≤ K + 1" in metrics
    assert "McNemar" not in metrics, "of one that is not shown"
    alone = write_index(tmp_path, items[:1], {}).read_text()
    title = items[0].spec.title
    assert f"<h1>{title}</h1>" in alone
    assert f"<h2>{title}</h2>" not in alone and "<script" not in alone


def test_the_files_travel_with_the_page(page):
    files = dict(re.findall(r'download="(\S+)" href="data:[^;]+;base64,([^"]+)"', page))
    assert set(files) == {
        *(f"demo.{suffix}" for suffix in ("md", "tex", "csv")),
        *(f"{name}.{suffix}" for name in ("picture", "second") for suffix in ("pdf", "csv")),
    }
    assert base64.b64decode(files["demo.csv"]).startswith(b"report,Model,Method,Task,value_name")


def test_a_full_run_misses_nothing_and_an_empty_one_says_so(tmp_path):
    spec = table_spec()
    absent = {"accelerator": None, "commit": None}
    for items, environment, lines in (
        ([Item(spec, full_grid(spec))], {}, ["every cell of this report was measured."]),
        ([], {}, ["No report was rendered.", "No environment was recorded."]),
        ([Item(FIGURE, {})], {}, ["The figure was not drawn.", "A &lt;picture&gt;"]),
        ([], absent, ["<dt>accelerator</dt><dd>none</dd>", "<dt>commit</dt><dd>unknown</dd>"]),
    ):
        text = write_index(tmp_path, items, environment).read_text()
        assert all(line in text for line in lines)


def test_a_large_drawing_is_shown_as_png_and_a_large_file_is_not_held(items, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 10_000)
    text = write_index(tmp_path, items, {}).read_text()
    assert "<svg" not in text and text.count('<img class="plot" src="data:image/png;base64,') == 2
    assert "demo.md" in text and "picture.pdf" not in text


def test_the_papers_table_stands_beside_one_without_its_numbers(tmp_path):
    """Numbers of a pair that the paper has stand in our own table; those of another are its table
    as it is printed."""
    spec = table_spec(published={"file": "mars_table1.csv", "pair": "Model"})
    beta = spec.model_copy(update={"axes": spec.axes | {"Model": spec.axes["Model"][1:]}})
    inside, beside = (
        write_index(tmp_path, [Item(each, full_grid(each))], {}).read_text()
        for each in (spec, beta)
    )
    assert "As printed in" not in inside and "paper 3.74" in inside
    printed = beside[beside.index("As printed in") : beside.index('id="missing"')]
    assert printed.count('<th scope="row">') == 2 * 18 and "below it τ" in printed
    assert re.search(r"3.12\s*<sup>1</sup>", printed) and "prints the mean 3.12" in printed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bench output.dir=/home/me/runs/a n=4", "bench output.dir=…/a n=4"),
        ("task.path='/data/my/x.jsonl'", "task.path='…/x.jsonl'"),
        ("report=[a,b] store.dir=outputs/store", "report=[a,b] store.dir=outputs/store"),
        (
            "judge.base_url=http://127.0.0.1:8000/v1/chat",
            "judge.base_url=http://127.0.0.1:8000/v1/chat",
        ),
    ],
)
def test_folders_of_a_user_are_not_shown(text, shown):
    assert without_folders(text) == shown
