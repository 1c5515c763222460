"""`python -m tests.helpers.pictures PAGE`: take the pictures of docs/page.md from a report's index.html.

The page needs traced cells of MARS, of ARC and of the target alone on one task: `--group` names it by a part of its
title. The answer shown is the first one that the relaxation changed; the token pointed at is its least probable one."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from tests.helpers import browser

READY = "document.getElementById('answers')?.dataset.ready"
RIGHT = "#answers .sides article:last-child"
OUT = Path(__file__).parents[2] / "docs" / "page"


def settle(tab: browser.Page) -> None:
    """Wait for what the page loads from files beside it."""
    tab.run("new Promise(done => setTimeout(done, 1000))")
    tab.wait(f"{READY} && document.querySelector('{RIGHT} .token')")


def chosen(tab: browser.Page, role: str, words: str) -> None:
    """Choose the first entry of a list whose text has these words, and all prompts. Raises RuntimeError where there is
    none."""
    tab.run("document.querySelector('#answers .lists button').click()")
    number = tab.run(f"[...document.querySelector('[data-role={role}]').options]"
                     f".findIndex(one => one.text.includes({words!r}))")
    if number < 0:
        raise RuntimeError(f"no {role} has {words!r}")
    tab.choose(f"[data-role={role}]", tab.run(f"document.querySelector('[data-role={role}]').options[{number}].value"))
    settle(tab)


def top(tab: browser.Page, selector: str) -> None:
    """Scroll so that an element begins the window."""
    tab.run(f"document.querySelector({selector!r}).scrollIntoView({{block: 'start', behavior: 'instant'}})")


def point_at_relaxed(tab: browser.Page) -> None:
    """Open an answer with a token that was kept by the relaxation alone, a lost one where there is one, and point at
    the least probable of these tokens."""
    tab.run("[...document.querySelectorAll('#answers .lists button')]"
            ".find(one => /^Lost/.test(one.innerText))?.click()")
    for prompt in tab.run("[...document.querySelectorAll('#answers .prompts button')].map(one => one.dataset.prompt)"):
        tab.run(f"document.querySelector('#answers .prompts [data-prompt=\"{prompt}\"]').click()")
        settle(tab)
        far = tab.run(f"[...document.querySelectorAll('{RIGHT} .token.relaxed')].slice(0, 40)"
                      ".map(one => Number(one.style.getPropertyValue('--far')))")
        if far:
            tab.run(f"document.querySelectorAll('{RIGHT} .token.relaxed')[{far.index(max(far))}].id = 'darkest'")
            top(tab, "#answers .sides")
            tab.hover("#darkest")
            tab.wait("!document.querySelector('.card').hidden")
            return
    raise RuntimeError("no answer has a token that the relaxation kept")


def shot(tab: browser.Page, file: Path) -> None:
    """A picture of the window in 128 colours, a quarter of the size."""
    Image.open(tab.screenshot(file)).quantize(128).save(file, optimize=True)


def take(page: str, out: Path, group: str, mars: str, arc: str) -> None:
    """Take all pictures of a page. Raises RuntimeError where the page lacks a cell."""
    with tempfile.TemporaryDirectory() as profile, browser.page(Path(profile)) as tab:
        tab.look(width=1160, height=820)
        tab.open(page)
        tab.wait(READY)
        shot(tab, out / "opening.png")
        chosen(tab, "group", group)
        for name, words in (("answers_mars", mars), ("answers_arc", arc)):
            tab.look(width=1160, height=720)
            chosen(tab, "right", words)
            point_at_relaxed(tab)
            shot(tab, out / f"{name}.png")
        tab.look(width=1160, height=680)
        chosen(tab, "right", mars)
        top(tab, "#answers")
        shot(tab, out / "compare.png")
        tab.look(dark=True, width=390, height=800)
        tab.open(page)
        tab.wait(READY)
        shot(tab, out / "phone_dark.png")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done."""
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.pictures", description=__doc__)
    parser.add_argument("page", type=Path, help="index.html of a report")
    parser.add_argument("--group", default="mini_gsm", help="part of the group's title")
    parser.add_argument("--mars", default="mars rule.theta=0.5", help="part of the MARS cell's name")
    parser.add_argument("--arc", default="arc", help="part of the ARC cell's name")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the pictures")
    given = parser.parse_args(argv)
    take(given.page.resolve().as_uri(), given.out, given.group, given.mars, given.arc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
