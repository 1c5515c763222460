"""The controls of every summary: likelihood, diversity over repeats, control cells, where a cycle's
time goes."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from bench.run.answer import context
from methods.engine.loading import load_model
from tasks.mini import MiniTask
from tests.helpers.summaries import written

pytestmark = pytest.mark.slow

WARM = ("decoding.temperature=1", "decoding.max_new_tokens=10", "draft.length=3")


def test_likelihood_of_both_turns_by_the_stock_model(command, pair_folder) -> None:
    result = command("method=sps", "task=mini_chat", "n=2", *WARM)
    folder = pair_folder / "target"
    target, stock = load_model(str(folder)), AutoModelForCausalLM.from_pretrained(folder)
    prompts = {prompt.id: prompt for prompt in MiniTask("mini_chat").prompts(2)}
    nats = tokens = 0
    for sample in result.cell.samples():
        expected, rest = 0.0, list(sample.output_ids)
        for turn, size in enumerate(sample.turn_tokens):
            before, own = context(target, prompts[sample.id], sample.texts[:turn]), rest[:size]
            with torch.inference_mode():
                log_p = stock(torch.tensor([before + own])).logits[0].double().log_softmax(-1)
            expected -= sum(float(log_p[len(before) - 1 + i, token]) for i, token in enumerate(own))
            del rest[:size]
        assert sample.nll == pytest.approx(expected, abs=1e-3)
        nats, tokens = nats + sample.nll, tokens + len(sample.output_ids)
    summary = written(result.cell)
    assert summary.nll == pytest.approx(nats / tokens) and summary.baseline_nll > 0


def test_repeats_meet_in_the_summaries(command) -> None:
    alone = written(command("method=mars_sampling", *WARM).cell)
    assert (alone.repeats, alone.self_agreement) == (1, None)
    result = command(
        "method=mars_sampling",
        "repeat=0,1",
        "decoding.temperature=0,1",
        "summary=json",
        *WARM[1:],
        flags=["-m"],
    )
    assert result.status == 0
    greedy, warm, greedy_again, warm_again = (
        json.loads(line) for line in result.out.splitlines()[-4:]
    )
    assert {one["repeats"] for one in (greedy, greedy_again, warm, warm_again)} == {2}
    assert greedy["self_agreement"] == greedy_again["self_agreement"] == 1.0, (
        "greedy answers repeat"
    )
    assert warm["self_agreement"] == warm_again["self_agreement"] < 1.0
    assert greedy["nll"] < warm["nll"], "greedy decoding is likelier than sampling"


def test_what_a_rule_gains_over_the_lossless_one(command) -> None:
    axes = "rule=mars_sampling,lossless", "rule.q_mode=exact,draft", "decoding.temperature=0,1"
    result = command("drafter=eagle3", *axes, *WARM[1:], "timed=1", flags=["-m"])
    assert result.status == 0
    found = {
        (
            cell.config()["rule"]["name"],
            cell.config()["rule"]["q_mode"],
            cell.config()["decoding"]["temperature"],
        ): written(cell)
        for cell in result.cells
    }
    own, hot = found["mars", "draft", 1], found["lossless", "exact", 1]
    assert own.timed > 0 and own.tau_gain == pytest.approx(own.tau - hot.tau)
    assert own.lossless_accuracy == hot.accuracy and hot.tau_gain is None
    assert found["mars", "exact", 0].tau_gain is not None


def test_where_the_time_of_a_cycle_goes(command) -> None:
    result = command("method=ar,sps", *WARM, "timed=3", flags=["-m"])
    sps = next(written(cell) for cell in result.store.cells() if "-lossless-" in cell.key)
    parts = sps.phases
    assert 0 < parts["head"] < parts["verify"]
    assert (
        sps.head_ms == pytest.approx(1e3 * (parts["head"] + parts["accept"]))
        and 0 < sps.prefill_share < 1
    )
    assert (
        set(parts) == {"draft", "verify", "head", "accept", "commit", "cycle", "prefill"}
        and min(parts.values()) > 0
    )


REPORT = """
name: controlled
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


def test_controls_are_judged_as_rules_are(command, tmp_path) -> None:
    """Lossless decoding that is truncated or cooler, presented as a rule at temperature 1, has a
    distortion, a total variation and a verdict, with the clock of the row that it changes."""
    (tmp_path / "conf" / "report").mkdir(parents=True)
    (tmp_path / "conf" / "report" / "controlled.yaml").write_text(
        f"# python -m bench report=controlled\n{REPORT}"
    )
    result = command(
        "report=controlled",
        "n=4",
        "timed=3",
        "decoding.max_new_tokens=10",
        flags=["--config-dir", str(tmp_path / "conf")],
    )
    assert result.status == 0, result.err
    table = pd.read_csv(next(tmp_path.rglob("controlled.csv")), low_memory=False)
    found = table.set_index(["Rule", "value_name"])
    for rule in ("control: top-p 0.8", "control: lossless at T = 0.5", "random, 50%"):
        assert (
            0 < found.loc[(rule, "equal_d_tv"), "value"] < 1
            and found.loc[(rule, "equal_d_distortion"), "value"] > 0
        )
        assert isinstance(found.loc[(rule, "equal_d_speed"), "verdict"], str)
    assert found.loc[("EAGLE-3", "equal_d_tv"), "value"] < 1e-5
    assert "equal_d_outside" not in set(table["value_name"]), "no target is truncated"
    assert found.loc[("control: top-p 0.8", "tau_gain"), "value"] is not None
