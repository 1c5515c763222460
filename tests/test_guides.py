"""The guides are true when followed literally: their files are pasted into a copy of the checkout,
and their commands run there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel

from results.reports.axes import Entry
from results.reports.choice import Choice, Sweep
from results.reports.columns import Column
from results.reports.figures import Figure, View
from results.reports.spec import FigureSpec, Published, TableSpec, parse_report

ROOT = Path(__file__).parents[1]
FILE = re.compile(r"`([\w/]+\.\w+)`[^`]*\n\n```(?:python|yaml|json)\n(.*?)```", re.DOTALL)
"""A path, and the block below the paragraph that names it last."""
BLOCK = "```{}\n(.*?)```"
LONG = ("report=my_rule", "report=evidence", "bench -m ", "task=mini_sum", "floor.py")
"""Commands of the guides that show more of the same; those of a file outside: test_outside.py."""


PROGRAM = """
import json, runpy, sys
for module, *words in json.loads(sys.argv.pop()):
    sys.argv[1:] = words
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code:
            sys.exit(f"{module} {words}: {ended.code}")
"""
"""Runs modules with their words, one after another."""


def paste(page: str, checkout: Path):
    """Write the files of a page, and apply its changes."""
    for name, content in FILE.findall(page):
        (checkout / name).write_text(content)
    for number, change in enumerate(re.findall(BLOCK.format("diff"), page, re.DOTALL)):
        (checkout / f"{number}.diff").write_text(change)
        subprocess.run(
            ["git", "apply", "--unidiff-zero", f"{number}.diff"], cwd=checkout, check=True
        )


def commands(page: str) -> list[list[str]]:
    """The modules and words of a page's command lines, untimed."""
    lines = "".join(re.findall(BLOCK.format("bash"), page, re.DOTALL)).splitlines()
    found = [
        shlex.split(line, comments=True)[2:]
        for line in lines
        if not any(long in line for long in LONG)
    ]
    return [[*words, *["timed=0"] * (words[0] == "bench")] for words in found]


@pytest.mark.slow
def test_the_guides_are_true(tmp_path):
    """All in one copy of the checkout, without what runs have written, and their commands in one
    process."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    left_out = shutil.ignore_patterns(
        ".*", "outputs", "measured", "models", "__pycache__", "*.egg-info"
    )
    checkout = shutil.copytree(ROOT, tmp_path / "checkout", ignore=left_out)
    (checkout / "models").symlink_to(ROOT / "models")
    asked = []
    for name in ("adding_a_rule", "adding", "reports"):
        page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        paste(page, checkout)
        asked += commands(page)
    tests = [words[1:] for words in asked if words[0] == "pytest"]
    assert len(tests) == 5 and len(asked) > 10
    chosen = [words[: words.index("-k")] for words in tests if "-k" in words]
    words = " or ".join(words[-1] for words in tests if "-k" in words)
    whole = [file for words in tests if "-k" not in words for file in words]
    asked = [words for words in asked if words[0] != "pytest"] + [
        [
            "pytest",
            "-n",
            "0",
            "-q",
            *sorted({file for files in chosen for file in files}),
            "-k",
            words,
        ],
        ["pytest", "-n", "0", "-q", *whole, "-k", "not budget"],
    ]  # all guides at once are more than a user adds
    given = [sys.executable, "-c", PROGRAM, json.dumps(asked)]
    done = subprocess.run(given, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def test_the_rule_of_the_readme_is_that_of_its_guide():
    [shown] = re.findall(
        BLOCK.format("python"), (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    guide = (ROOT / "docs" / "adding_a_rule.md").read_text(encoding="utf-8").splitlines()
    exec(shown, {"__name__": "floor"})  # it has its imports
    assert set(shown.partition("class ")[2].splitlines()[1:]) <= set(guide)


def test_every_key_of_the_report_language_is_explained():
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    spoken = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    figures: tuple[type[BaseModel], ...] = get_args(get_args(Figure)[0])
    models = (TableSpec, FigureSpec, Entry, Column, Choice, Sweep, Published, View, *figures)
    missing = {
        f"{model.__name__}.{key}"
        for model in models
        for key in model.model_fields
        if key not in spoken
    }
    assert len(figures) == 5 and not missing, f"docs/reports.md does not explain {sorted(missing)}"
    kinds = {get_args(model.model_fields["kind"].annotation)[0] for model in figures}
    assert kinds <= spoken, kinds - spoken


def test_the_annotated_report_is_one():
    [(_, text)] = FILE.findall((ROOT / "docs" / "reports.md").read_text(encoding="utf-8"))
    report = parse_report(yaml.safe_load(text))
    assert isinstance(report, TableSpec) and len(report.points()) == 6
