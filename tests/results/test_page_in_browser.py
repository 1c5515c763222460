"""The page in a headless Chromium, opened from its file: choose cells, open a prompt, tap a token,
print."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.reports.page import Item, write_index
from tests.helpers import browser
from tests.helpers.synthetic_cells import full_grid, table_spec
from tests.helpers.viewed_cells import HOSTILE, group

pytestmark = pytest.mark.slow
RIGHT = "#answers article:last-child"


@pytest.mark.parametrize("width", [1280, 390])
def test_answers_token_by_token(tmp_path: Path, width: int) -> None:
    groups = [group(tmp_path, "base", n=40), group(tmp_path, "other", n=3, cells=2)]
    spec = table_spec()
    page = write_index(
        tmp_path / "page", [Item(spec, full_grid(spec))], {"argv": ["bench"]}, groups=groups
    )
    with browser.page() as tab:
        tab.look(width=width)
        tab.open(page.as_uri())
        tab.wait("document.querySelector('#answers').dataset.ready === '0 0 2'")
        tab.choose("#answers label:last-child select", "1")
        tab.wait("document.querySelector('#answers').dataset.ready === '0 0 1'")
        tab.wait(f"document.querySelector('{RIGHT} .token')")
        assert tab.run("document.querySelectorAll('#answers .prompts > details').length") == 32
        tokens = f"[...document.querySelectorAll('{RIGHT} .token')]"
        assert tab.run(f"{tokens}.map(one => one.classList[1]).join('')") == "dsrdadss"
        assert (
            tab.run(f"{tokens}.map(one => +one.classList.contains('cycle')).join('')") == "01001010"
        )
        assert tab.run("document.querySelectorAll('#answers .parts').length") == 2, (
            "where the answers part"
        )
        tab.click(f"{RIGHT} .token:nth-of-type(3)")
        assert "kept by the relaxation alone; p 0.1 of at most 0.4" in tab.text(f"{RIGHT} .facts")
        assert "relaxed where theta > 0.5" in tab.text(f"{RIGHT} .facts")
        assert HOSTILE in tab.run("document.querySelector('#answers .prompt').textContent"), (
            "it stays text"
        )
        assert tab.run("document.querySelectorAll('#answers img').length") == 0
        tab.choose("#answers label:first-child select", "1")
        tab.wait("document.querySelector('#answers').dataset.ready === '1 0 1'")
        assert tab.run("document.querySelectorAll('#answers .prompts > details').length") == 3
        assert tab.run("document.documentElement.scrollWidth") <= width, "nothing sticks out"
        assert tab.errors == []


def test_folds_are_open_on_paper(tmp_path: Path) -> None:
    spec = table_spec()
    seen = "document.querySelector('#metrics dl').checkVisibility({contentVisibilityAuto: true})"
    with browser.page() as tab:
        tab.open(write_index(tmp_path / "page", [Item(spec, full_grid(spec))], {}).as_uri())
        assert not tab.run(seen)
        tab.look(media="print")
        assert tab.run(seen)
