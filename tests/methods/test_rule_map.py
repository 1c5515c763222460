"""docs/rules.md says what the rules' docstrings say."""

from __future__ import annotations

from pathlib import Path

import pytest

from methods import registry, rule_map


def test_the_page_is_up_to_date() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
    assert page == rule_map.page(), "run `python -m methods.rule_map`"
    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")] == registry.names("rules")


def test_a_docstring_without_its_row_is_refused(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("methods.rules.greedy.__doc__", "Greedy.\n\nIn docs/rules.md\n  accepts  x\n")
    with pytest.raises(ValueError, match=r"methods/rules/greedy\.py"):
        rule_map.entries("greedy")
    assert rule_map.main() == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: methods/rules/greedy.py: its docstring must end in")
