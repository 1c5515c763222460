"""The controls of every summary: diversity over repeats, control cells, what a rule gains."""

import json

import pandas as pd
import pytest

from results.store.cells import Store
from tests.helpers.summaries import written

pytestmark = pytest.mark.slow

SHORT = "decoding.max_new_tokens=10 draft.length=3"


def test_repeats_meet_in_the_summaries(command):
    axes = "repeat=0,1 decoding.temperature=0,1 summary=json"
    lines = command("-m method=mars_sampling", axes, SHORT).out.splitlines()[-4:]
    greedy, warm, *again = map(json.loads, lines)
    for first, second in zip((greedy, warm), again, strict=True):
        assert first["repeats"] == second["repeats"] == 2
        assert first["self_agreement"] == second["self_agreement"]
    assert greedy["self_agreement"] == 1.0 > warm["self_agreement"], "greedy answers repeat"
    assert greedy["nll"] < warm["nll"], "greedy decoding is likelier than sampling"


def test_what_a_rule_gains(measured):
    sps, mars = (
        next(written(cell) for cell in Store(measured).cells() if f"-{rule}-" in cell.key)
        for rule in ("lossless", "mars")
    )
    assert mars.timed > 0 and sps.tau_gain is None
    assert (mars.repeats, mars.self_agreement) == (1, None)
    assert mars.tau_gain == pytest.approx(mars.tau - sps.tau)
    assert 0 < sps.head_ms < 1e3 * sps.phases["verify"]


REPORT = """
name: own
title: "Controls"
kind: table
base: [decoding.temperature=1, draft.length=3, drafter=eagle3]
axes:
  Model: [tiny]
  Task: [chat]
  Rule:
    - {label: Target alone, overrides: [drafter=none, rule=lossless], baseline: true}
    - {label: best lossless, variants: [{label: tree, overrides: [rule=lossless]}]}
    - {label: EAGLE-3, overrides: [rule=lossless]}
    - {label: "control: top-p 0.8", overrides: [rule=lossless, decoding.top_p=0.8], judged_at: 1}
    - {label: "control: lossless at T = 0.5", overrides: [rule=lossless, decoding.temperature=0.5, repeat=1],
       judged_at: 1}
    - {label: "random, 50%", overrides: [rule=random, rule.rate=0.5]}
rows: [Model, Task, Rule]
choice: {axes: [Setting], lossless: best lossless, frontier: [tree]}
values: [tau, tau_gain]
"""


def test_controls_are_judged_as_rules_are(command, own_report, tmp_path):
    """Lossless decoding that is truncated or cooler, presented as a rule at temperature 1, has a
    distortion, a total variation and a verdict, with the clock of the row that it changes. Answers
    may come first and times later."""
    words = "n=4 decoding.max_new_tokens=10"
    answers = command(own_report(REPORT), words, "timed=0")
    assert "not drawn: report=own" in answers.out and not list(tmp_path.rglob("own.csv"))
    cells = answers.store.cells()
    assert len(cells) > 2 and not any(cell.timed() for cell in cells)
    command(own_report(REPORT), words, "timed=3")
    table = pd.read_csv(next(tmp_path.rglob("own.csv")), low_memory=False)
    cells = table.set_index(["Rule", "value_name"])
    for rule in ("control: top-p 0.8", "control: lossless at T = 0.5", "random, 50%"):
        assert 0 < cells.loc[(rule, "equal_d_tv"), "value"] < 1
        assert cells.loc[(rule, "equal_d_distortion"), "value"] > 0
        assert isinstance(cells.loc[(rule, "equal_d_speed"), "verdict"], str)
    assert cells.loc[("EAGLE-3", "equal_d_tv"), "value"] < 1e-5
    assert pd.isna(cells.loc[("EAGLE-3", "equal_d_speed"), "verdict"]), "lossless: nothing to judge"
    assert "equal_d_outside" not in set(table["value_name"]), "no target is truncated"
    assert pd.notna(cells.loc[("control: top-p 0.8", "tau_gain"), "value"])
    judged = ("random, 50%", "equal_d_speed"), ["value", "ci_low", "ci_high", "verdict"]
    many = cells.loc[judged]
    shorter = [
        line for line in REPORT.splitlines() if "top-p" not in line and "EAGLE-3," not in line
    ]
    command(own_report("\n".join(shorter)), words, "timed=3")
    table = pd.read_csv(next(tmp_path.rglob("own.csv")), low_memory=False)
    few = table.set_index(["Rule", "value_name"]).loc[judged]
    assert len(table) < len(cells) and few.to_dict() == many.to_dict(), (
        "the verdict does not depend on the rows beside it"
    )
