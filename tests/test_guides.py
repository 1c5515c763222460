"""The guides are true when followed literally: their files are pasted into a copy of the checkout, and their commands
run there."""

from __future__ import annotations

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
from results.reports.choice import Choice
from results.reports.columns import Column
from results.reports.figures import Figure, View
from results.reports.kinds import parse_report
from results.reports.spec import FigureSpec, Published, TableSpec
from results.reports.swept import Sweep

ROOT = Path(__file__).parents[1]
FILE = re.compile(r"`([\w/]+\.\w+)`[^`]*\n\n```(?:python|yaml|json)\n(.*?)```", re.DOTALL)
"""A path, and the block below the paragraph that names it last."""
BLOCK = "```{}\n(.*?)```"
LONG = ("report=my_rule", "bench -m ", "task=mini_sum")
"""Commands of the guides that show more of the same."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout without what runs have written."""
    left_out = shutil.ignore_patterns(".*", "outputs", "measured", "models", "__pycache__", "*.egg-info")
    copy = shutil.copytree(ROOT, tmp_path / "checkout", ignore=left_out)
    (copy / "models").symlink_to(ROOT / "models")
    return copy


def run(words: list[str], checkout: Path) -> None:
    done = subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def paste(page: str, checkout: Path) -> None:
    """Write the files of a page, and apply its changes."""
    for name, content in FILE.findall(page):
        (checkout / name).write_text(content)
    for number, change in enumerate(re.findall(BLOCK.format("diff"), page, re.DOTALL)):
        (checkout / f"{number}.diff").write_text(change)
        run(["git", "apply", "--unidiff-zero", f"{number}.diff"], checkout)


def commands(page: str) -> list[list[str]]:
    """The command lines of a page, untimed."""
    lines = "".join(re.findall(BLOCK.format("bash"), page, re.DOTALL)).splitlines()
    found = []
    for line in lines:
        _, *words = shlex.split(line, comments=True)
        if not any(long in line for long in LONG):
            more = ["timed=0"] if words[1] == "bench" else ["-n", "0", "-q"] if words[1] == "pytest" else []
            found.append([sys.executable, *words, *more])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adding_a_rule", "adding_a_drafter", "adding_a_task", "reports"])
def test_a_guide_is_true(name: str, checkout: Path) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    paste(page, checkout)
    asked = commands(page)
    assert any("pytest" in words for words in asked) and len(asked) >= 2
    for words in asked:
        run(words, checkout)


@pytest.mark.slow
def test_the_rule_of_the_readme_passes_the_tests_of_the_guide(checkout: Path) -> None:
    paste((ROOT / "README.md").read_text(encoding="utf-8"), checkout)
    assert (checkout / "methods/rules/mine.py").exists() and (checkout / "conf/rule/mine.yaml").exists()
    for words in commands((ROOT / "docs/adding_a_rule.md").read_text(encoding="utf-8")):
        run([word.replace("floor", "mine") for word in words], checkout)


def test_every_key_of_the_report_language_is_explained() -> None:
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    spoken = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    figures: tuple[type[BaseModel], ...] = get_args(get_args(Figure)[0])
    models = (TableSpec, FigureSpec, Entry, Column, Choice, Sweep, Published, View, *figures)
    missing = {f"{model.__name__}.{key}" for model in models for key in model.model_fields if key not in spoken}
    assert len(figures) == 8 and not missing, f"docs/reports.md does not explain {sorted(missing)}"
    kinds = {get_args(model.model_fields["kind"].annotation)[0] for model in figures}
    assert kinds <= spoken, kinds - spoken


def test_the_annotated_report_is_one() -> None:
    [(_, text)] = FILE.findall((ROOT / "docs" / "reports.md").read_text(encoding="utf-8"))
    report = parse_report(yaml.safe_load(text))
    assert isinstance(report, TableSpec) and len(report.points()) == 6
