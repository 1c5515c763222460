"""The controls of every summary: likelihood, diversity over repeats, control cells, where a cycle's
time goes."""

import json

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from bench.run.answer import context
from methods.engine.loading import load_model
from results.store.cells import Store
from tasks.mini import MiniTask
from tests.helpers.summaries import written

pytestmark = pytest.mark.slow

SHORT = "decoding.max_new_tokens=10 draft.length=3"


def test_likelihood_of_both_turns_by_the_stock_model(command, pair_folder):
    cell = command("method=sps task=mini_chat n=2 decoding.temperature=1", SHORT).cell
    folder = pair_folder / "target"
    target, stock = load_model(str(folder)), AutoModelForCausalLM.from_pretrained(folder)
    prompts = {prompt.id: prompt for prompt in MiniTask("mini_chat").prompts(2)}
    nats = tokens = 0
    for sample in cell.samples():
        expected, rest = 0.0, list(sample.output_ids)
        for turn, size in enumerate(sample.turn_tokens):
            before = context(target, prompts[sample.id], sample.texts[:turn])
            answer, rest = rest[:size], rest[size:]
            with torch.inference_mode():
                logits = stock(torch.tensor([before + answer])).logits[0, len(before) - 1 : -1]
            log_p = logits.double().log_softmax(-1)
            expected -= float(log_p.gather(1, torch.tensor([answer]).T).sum())
        assert sample.nll == pytest.approx(expected, abs=1e-3)
        nats, tokens = nats + sample.nll, tokens + len(sample.output_ids)
    summary = written(cell)
    assert summary.nll == pytest.approx(nats / tokens)


def test_repeats_meet_in_the_summaries(command):
    axes = "repeat=0,1 decoding.temperature=0,1 summary=json"
    lines = command("-m method=mars_sampling", axes, SHORT).out.splitlines()[-4:]
    greedy, warm, *again = map(json.loads, lines)
    for first, second in zip((greedy, warm), again, strict=True):
        assert first["repeats"] == second["repeats"] == 2
        assert first["self_agreement"] == second["self_agreement"]
    assert greedy["self_agreement"] == 1.0 > warm["self_agreement"], "greedy answers repeat"
    assert greedy["nll"] < warm["nll"], "greedy decoding is likelier than sampling"


def test_what_a_rule_gains_and_where_the_time_of_a_cycle_goes(measured):
    sps, mars = (
        next(cell for cell in Store(measured).cells() if f"-{rule}-" in cell.key)
        for rule in ("lossless", "mars")
    )
    summary, relaxed = written(sps), written(mars)
    assert relaxed.timed > 0 and summary.tau_gain is None
    assert (relaxed.repeats, relaxed.self_agreement) == (1, None)
    assert relaxed.tau_gain == pytest.approx(relaxed.tau - summary.tau)
    parts = summary.phases
    assert 0 < parts["head"] < parts["verify"] and 0 < summary.prefill_share < 1
    assert summary.head_ms == pytest.approx(1e3 * (parts["head"] + parts["accept"]))
    names = {"draft", "verify", "head", "accept", "commit", "cycle", "prefill"}
    assert set(parts) == names and min(parts.values()) > 0


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
    distortion, a total variation and a verdict, with the clock of the row that it changes."""
    words = "n=4 timed=3 decoding.max_new_tokens=10"
    command(own_report(REPORT), words)
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
    command(own_report("\n".join(shorter)), words)
    table = pd.read_csv(next(tmp_path.rglob("own.csv")), low_memory=False)
    few = table.set_index(["Rule", "value_name"]).loc[judged]
    assert len(table) < len(cells) and few.to_dict() == many.to_dict(), (
        "the verdict does not depend on the rows beside it"
    )
