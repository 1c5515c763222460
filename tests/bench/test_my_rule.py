"""report=my_rule: the rule of docs/adding_a_rule.md, added as that page says, beside the best
lossless method."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import methods.rules
from bench.reports.plan import plan_of
from methods import registry
from results.reports.choice import Sweep, spread
from results.reports.spec import parse_report
from tests.helpers.consistency import contradictions

PAGE = Path(__file__).parents[2] / "docs" / "adding_a_rule.md"


@pytest.fixture
def floor(tmp_path, monkeypatch) -> Iterator[str]:
    """The page's rule in folders of the user's own; the flags that add its YAML."""
    blocks = re.findall(r"```(python|yaml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    python, config = (dict(reversed(blocks))[kind] for kind in ("python", "yaml"))
    rules, conf = tmp_path / "rules", tmp_path / "conf" / "rule"
    for folder, file, text in ((rules, "floor.py", python), (conf, "floor.yaml", config)):
        folder.mkdir(parents=True)
        (folder / file).write_text(text)
    monkeypatch.setattr(methods.rules, "__path__", [*methods.rules.__path__, str(rules)])
    registry.classes.cache_clear()
    yield f"-cd {conf.parent}"
    registry.classes.cache_clear()


def test_the_rule_of_the_page(command, floor, tmp_path):
    words = f"{floor} report=my_rule rule=floor report.sweep.values=[0.2,0.8]"
    result = command(words, "n=2 timed=2 decoding.max_new_tokens=4 sessions=1")
    out = tmp_path / "out" / "report"
    rows = list(csv.DictReader((out / "my_rule_floor.csv").open()))
    names = ("best lossless", "floor")
    curve = {row["Rule"] for row in rows} - {*names, *(f"{name}, T = 0" for name in names)}
    assert curve and all(re.fullmatch(r"(best )?lossless, T = [\d.]+", label) for label in curve)
    settings = {row["Setting"] for row in rows if row["Rule"] == "floor"} - {None, ""}
    assert settings == {"floor = 0.2", "floor = 0.8"}
    assert {cell.config()["rule"].get("floor") for cell in result.cells} == {None, 0.2, 0.8}
    compared, contradicting = contradictions([out / "my_rule_floor.csv"])
    assert compared and not contradicting, "a row over two settings names the cells of both"
    text = (out / "my_rule_floor.md").read_text()
    assert "### floor beside the best lossless method" in text
    assert re.search(r"floor.*: (gain|no gain|undecided, n)", text), "the verdict in words"
    metrics = {row["value_name"] for row in rows}
    assert {"equal_d_speed", "equal_d_answer", "equal_d_length"} <= metrics


def test_an_option_that_is_given_is_not_swept(hydra, pair):
    spec = parse_report(hydra.section("report", "my_rule"))
    plan = plan_of(spec, hydra, [*pair, "rule=ears", "rule.tolerance=0.5"])
    rules = {coords[1]: cell.rule for coords, cell in plan.cells.items()}
    assert rules["ears"].options.tolerance == rules["ears, T = 0"].options.tolerance == 0.5
    assert rules["best lossless, T = 0"].name == "lossless"
    rows = {"best lossless", "ears", "best lossless, T = 0", "ears, T = 0"}
    curve = {coords[1] for coords in plan.cells} - rows
    assert not plan.refused and sum(coords[1] in rows for coords in plan.cells) == 8 + 2 + 6 + 2
    assert curve >= {"lossless, T = 0.2", "lossless, T = 0"}


def test_the_swept_option_is_the_only_fraction_and_values_spread_around_it():
    assert spread(2.0) == (0.5, 1.0, 2.0, 4.0, 8.0) and spread(0.9) == (0.3, 0.6, 0.9, 0.933, 0.967)
    assert spread(0.9999) == (0.333, 0.667, 1.0), "three digits"
    sweep = Sweep(rows=("RULE",))
    mars = {"name": "mars", "variant": "sampling", "theta": 0.9, "k": 3}
    assert sweep.threshold(mars)[0] == "theta"
    assert sweep.threshold({"name": "block"}) == ("", ())
    chosen = Sweep(rows=("RULE",), option="k", values=(1, 2))
    assert chosen.threshold({"name": "x", "k": 3}) == ("k", (1, 2))
    with pytest.raises(ValueError, match=r"rule\.t=0\.0: no value to spread others around"):
        sweep.threshold({"name": "x", "t": 0.0})
