"""The page of margins: every number against a slow reference on a tiny random pair, and the page of a command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
import torch

import bench.margins
from bench.training.margins import certainty, margins, thresholds
from methods import registry
from methods.decode import Limits
from methods.engine.loading import load_model
from methods.method import build_method
from methods.sampling import Sampling
from tasks.mini import MiniTask


def test_every_position_agrees_with_a_float64_reference(pair_folder: Path):
    target = load_model(str(pair_folder / "target"))
    method = build_method(target, None, registry.drafter("none")(), registry.rule("greedy")(), Sampling(0.0), 1)
    task = MiniTask("mini_choice")
    found = margins(method, task, task.prompts(2), Limits(6, target.eos_ids))
    assert len(found.replies) == 2 == found.positions.answer.nunique()
    for number, one in enumerate(found.replies):
        before = target.encode([{"role": "user", "content": one.prompt.turns[0]}])
        ids = torch.tensor([before + one.ids])
        cache = target.new_cache(1, ids.shape[1])
        logits = target.forward(ids, cache).logits[0, len(before) - 1 : -1].double()
        for position, z in zip(found.positions[found.positions.answer == number].itertuples(), logits, strict=True):
            top = sorted(z.tolist(), reverse=True)
            p = [math.exp(value - top[0]) for value in z.tolist()]
            p = [value / sum(p) for value in p]
            entropy = -sum(value * math.log(value) for value in p)
            assert (position.z1, position.z2) == pytest.approx(top[:2], abs=1e-4)
            assert (position.p1, position.p2) == pytest.approx(sorted(p, reverse=True)[:2], abs=1e-5)
            assert position.entropy == pytest.approx(entropy, abs=1e-4)
            assert (position.mean, position.std) == pytest.approx((z.mean().item(), z.std().item()), abs=1e-4)
            assert position.ratio == pytest.approx(position.z2 / position.z1)
            assert position.centred_ratio == pytest.approx((top[1] - z.mean().item()) / (top[0] - z.mean().item()),
                                                           rel=1e-3)
            assert z[position.runner_up] == pytest.approx(top[1], abs=1e-4)


def test_shares_by_hand():
    """Logits 10 and 9.5 about a mean of 0 or 9; probabilities 0.5 and 0.3, or 0.9 and 0.05."""
    positions = pd.DataFrame({"z1": [10, 10], "p1": [0.5, 0.9], "p2": [0.3, 0.05], "std": [2, 4], "entropy": [1, 3],
                              "ratio": [0.95, 0.95], "centred_ratio": [0.95, 0.5]})
    assert certainty(positions, 0.9) == pytest.approx({
        "positions": 2, "z1": 10, "std": 3, "p1": 0.7, "entropy": 2, "low": 1, "low_centred": 0.5,
        "low_probability": 0.5, "negative": 0})


def test_thresholds_by_hand():
    """Three positions of two answers, of ratios 0.95, 0.9 and 0.5; centred about 5: 0.9, 0.8 and 0."""
    positions = pd.DataFrame({"answer": [0, 0, 1], "z1": 10.0, "mean": 5.0, "ratio": [0.95, 0.9, 0.5],
                              "centred_ratio": [0.9, 0.8, 0.0]})
    rows = {row["theta"]: row for row in thresholds(positions)}
    assert [rows[theta]["raw"]["share"] for theta in (0.8, 0.88, 0.92, 0.96)] == pytest.approx([2 / 3, 2 / 3, 1 / 3, 0])
    assert [rows[theta]["centred"]["share"] for theta in (0.8, 0.88, 0.92)] == pytest.approx([1 / 3, 1 / 3, 0])
    assert rows[0.84]["raw"]["ci95"] == pytest.approx((0, 1)), "an answer is resampled whole"
    assert rows[0.8]["raw"]["prob_ratio"] == pytest.approx(math.exp(-2))
    assert rows[0.8]["centred"]["prob_ratio"] == pytest.approx(math.exp(-1))


def test_the_page_of_any_pair_and_of_two_side_by_side(pair_folder: Path, tmp_path: Path, capsys):
    command = ["pair=local", f"pair.target={pair_folder / 'target'}", "task=mini_choice", "prompts=2",
               "max_new_tokens=5", f"work={tmp_path}"]
    assert bench.margins.main([*command, f"out={tmp_path}/a.md"]) == 0
    numbers = json.loads((tmp_path / "a.json").read_text())
    assert numbers["certainty"]["positions"] <= 10 and numbers["task"] == "mini_choice"
    assert bench.margins.main([*command, f"out={tmp_path}/b.md", f"beside=[{tmp_path}/a.json]"]) == 0
    page = (tmp_path / "b.md").read_text()
    assert page.count("| mini_choice |") == 10 and f"{numbers['certainty']['entropy']:.2f}" in page
    assert bench.margins.main([*command, f"out={tmp_path}/c.md", f"beside=[{tmp_path}/b.md]"]) == 2
    assert "beside=" in capsys.readouterr().err
