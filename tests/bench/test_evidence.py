"""report=evidence: rules and tasks that the command names, beside the altered target."""

from __future__ import annotations

import re
from itertools import product
from math import comb
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bench import currency
from bench.reports import audits
from bench.reports.plan import plan_of
from bench.reports.spans import spans, tokens_until
from results.metrics.quality import least_loss
from results.reports.spec import parse_report
from tests.helpers.synthetic_cells import sample

SHORT = "timed=2 decoding.max_new_tokens=4 sessions=1"
FEW = "report.axes.K=[{label:K3,overrides:['draft.length=3']}] report.choice.frontier=[standard]"
"""Of its cells."""
CURRENCY = ["bfloat16", "Q8_0", "Q4_0", "T = 0.9", "T = 0.7"]


def test_the_page(command, pair, tmp_path, monkeypatch):
    command(f"report=evidence rule=mars n=2 {SHORT} {FEW}")
    file = tmp_path / "out" / "report" / "evidence_mars.csv"
    rows = pd.read_csv(file, low_memory=False)
    first = rows[rows["report"] == "evidence_mars"].set_index(["Rule", "value_name"])["value"]
    names = [f"target {'at' if name.startswith('T') else 'in'} {name}" for name in CURRENCY]
    found = [first[name, "equal_d_distortion"] for name in names]
    assert set(first[names[0]].dropna().index) == {"equal_d_distortion"}, "it was not decoded"
    assert first["mars", "tau_mean"] >= 1 and first["best lossless", "equal_d_distortion"] == 0
    text = file.with_suffix(".md").read_text()
    assert re.search(r"\| mars .*×? .*(gain|undecided)", text) and "target in Q4_0" in text
    assert "Nats per answer" in text and "reasoning and answer" not in text

    # the same texts, by the command that measures nothing else
    words = [*pair, "task=mini_gsm", "n=2", "decoding.max_new_tokens=4", f"output.dir={tmp_path}"]
    store = f"store.dir={tmp_path / 'store'}"
    assert currency.main([*words, store, "forms=[bfloat16,Q8_0,Q4_0]"]) == 0
    alone = pd.read_csv(tmp_path / "currency.csv").set_index("target")["D"]
    assert list(alone.index) == CURRENCY
    assert 0 < alone["bfloat16"] < alone["Q4_0"] and alone["T = 0.9"] < alone["T = 0.7"]
    assert found == pytest.approx(list(alone), rel=1e-9)

    # kept in the store: once
    asked = []
    measure = audits.altered_nats
    monkeypatch.setattr(
        audits, "altered_nats", lambda *of: asked.append(len(of[2])) or measure(*of)
    )
    command(f"report=evidence rule=mars n=2 {SHORT} {FEW}")
    assert asked == []
    command(f"report=evidence rule=mars n=3 {SHORT} {FEW}")
    assert asked == [1], "the further prompt alone"


def test_rules_and_tasks(hydra, pair):
    spec = parse_report(hydra.section("report", "evidence"))
    named = ["rules=[mars,typical]", "tasks=[mini_chat,mini_gsm]"]
    plan = plan_of(spec, hydra, [*pair, *named])
    assert plan.spec.name == "evidence_mars_typical" and not plan.refused
    found = {
        (labels["Task"], labels["Rule"]): (cell.task.name, cell.rule.name)
        for labels, cell in zip(map(plan.spec.labels, plan.cells), plan.cells.values(), strict=True)
    }
    for place in product(("mini_chat", "mini_gsm"), ("mars", "typical")):
        assert found[place] == place
    assert all(task == label for (label, _), (task, _) in found.items())
    one = plan_of(spec, hydra, [*pair, "rule=mars", "rule.theta=0.8", "task=mini_code"])
    of_rule = {cell.rule.options.theta for cell in one.cells.values() if cell.rule.name == "mars"}
    assert of_rule == {0.8} and {cell.task.name for cell in one.cells.values()} == {"mini_code"}


@pytest.mark.parametrize(("churn", "right", "n"), [(0, 40, 60), (12, 40, 60), (3, 250, 300)])
def test_a_loss_of_that_size_is_seen_four_times_in_five(churn, right, n):
    loss = float(least_loss(np.array([churn, right, n], float)))
    rng, seen = np.random.default_rng(0), 0
    for _ in range(4000):
        lost, gained, _same = rng.multinomial(
            n, [churn / 2 / n + loss, churn / 2 / n, 1 - churn / n - loss]
        )
        seen += sign_test(int(lost), int(gained)) <= 0.025
    assert seen / 4000 == pytest.approx(0.8, abs=0.03)


def sign_test(lost: int, gained: int) -> float:
    """The probability of at least as many losses among so many fair coins."""
    n = lost + gained
    return sum(comb(n, k) for k in range(lost, n + 1)) / 2**n


def test_a_few_questions_cannot_see_a_loss():
    assert np.isnan(least_loss(np.array([1.0, 4.0, 64.0]))), "4 right answers are too few to lose"
    assert 0.3 < least_loss(np.array([3.0, 20.0, 30.0])) < 0.4


def test_spans_of_an_answer():
    """A reasoning of three tokens, its mark included, then an answer; a turn that was cut."""
    words = ["I", " think", "</think>", " so", ".", "!"]
    cell = SimpleNamespace(
        texts=lambda ids: [words[i] for i in ids],
        task=SimpleNamespace(options=SimpleNamespace(think_end=None)),
    )
    whole = sample("a", [0, 1, 2, 3, 4, 5], committed=[1, 3, 1])
    cut = sample("b", [0, 1, 1], committed=[2], finish=["length"])
    found = {name: sums.rows.tolist() for name, sums in spans(cell, [whole, cut]).items()}
    assert found["thinking_share"] == [[3, 6], [3, 3]]
    assert found["thinking_cut"] == [[0, 1], [1, 1]]
    assert found["tau_thinking"] == [[4, 2], [2, 1]] and found["tau_answer"] == [[1, 1]]
    cell.task.options.think_end = "so"
    assert spans(cell, [whole])["thinking_share"].rows.tolist() == [[4, 6]]
    cell.task.options.think_end = "no such"
    assert spans(cell, [whole]) == {}
    assert tokens_until(re.compile("b"), ["a", "", "b", "c"]) == 3
