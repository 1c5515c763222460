"""Leeway from Python: the example of the page, and what it returns."""

from __future__ import annotations

import re
from pathlib import Path

import leeway
from methods.rules.lossless import Lossless

PAGE = Path(__file__).parents[2] / "docs" / "screen.md"


def test_the_example_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"```python\n(from leeway.*?)```", PAGE.read_text(), re.DOTALL)
    quick = example.replace("n=32", 'n=2, **{"decoding.max_new_tokens": 12}')
    names = {}
    exec(quick, names)
    expected, measured = names["expected"], names["measured"]
    assert set(expected["setting"][expected["rule"] == "mars"]) == {"theta=0.5", "theta=0.9"}
    assert [row.split()[0] for row in measured["overrides"]] == ["rule=lossless", "rule=mars"]
    assert (measured["n"] == 2).all() and (measured["tau"] > 1).all()
    assert measured["distortion"][0] < 1e-6
    assert (tmp_path / "outputs" / "screen.csv").is_file()
    assert "theta=0.9" in capsys.readouterr().out
    assert issubclass(Lossless, leeway.Rule), "the class to subclass"


def test_one_setting_is_one_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = leeway.evaluate("drafter=none", task="mini_gsm", n=1, timed=0, seed=3)
    assert len(frame) == 1 and frame["tau"][0] == 1
