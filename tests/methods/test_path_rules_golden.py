"""Rules that look along a chain, or carry a state from block to block, against outcomes of their authors' functions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from methods import registry
from methods.rules import block
from methods.rules.base import Rule
from methods.rules.verification import State, Verification
from methods.rules.walk import Walk, walk
from methods.sampling import Sampling
from methods.trees.draft import Draft


@pytest.fixture
def cases(golden):
    def load(name: str) -> list[dict[str, Any]]:
        return json.loads(golden(f"more_rules/{name}.json").read_text())["cases"]
    return load


def verification(case: dict[str, Any], sampling: Sampling, state: State | None = None) -> Verification:
    """A chain, or one block of a request. Rows without draft logits are deterministic candidates."""
    z, tokens = torch.tensor([case["target_logits"]]), torch.tensor([[0, *case["tokens"]]])
    u = torch.tensor([[0.0, *case.get("u", [0.5] * len(case["tokens"]))]])
    if case.get("draft_logits") is None or case["kind"] == "one_hot" or sampling.greedy:
        return Verification(Draft.of_chain(tokens), z, sampling, u, state=state)
    draft_z = torch.tensor([case["draft_logits"]])
    q = sampling.probs(draft_z).gather(-1, tokens[:, 1:, None])[..., 0]
    draft = Draft.of_chain(tokens, sampled=True, q=torch.cat([torch.ones(1, 1), q], 1),
                           logits=torch.cat([draft_z, torch.full_like(draft_z[:, :1], torch.nan)], 1))
    return Verification(draft, z, sampling, u, state=state)


def assert_outcome(rule: Rule, v: Verification, expected: dict[str, Any], where: str) -> tuple[Walk, torch.Tensor]:
    """The number of kept tokens and the distribution behind them. Returns the path and the emitted token."""
    path = walk(v, rule.decide(v))
    assert int(path.length) == expected["accepted"], where
    weights = rule.emit(v, path.last)[0].double()
    emitted = expected["emit"]
    want = np.eye(len(weights))[emitted] if isinstance(emitted, int) else emitted
    np.testing.assert_allclose(weights / weights.sum(), want, atol=1e-5, err_msg=where)
    return path, rule.next_token(v, path.last, v.u[:, 0])


@pytest.mark.parametrize("name", ["block", "topp_window", "fly", "bild"])
def test_chains(cases, name: str) -> None:
    lengths = set()
    for case in cases(name):
        rule, sampling = registry.rule(name)(**case["params"]), Sampling(**case["sampling"])
        v, expected = verification(case, sampling), case["expected"]
        assert_outcome(rule, v, expected, case["id"])
        lengths.add(expected["accepted"])
        if "h" in expected:
            np.testing.assert_allclose(block.thresholds(v)[0, 1:], expected["h"], atol=1e-5, err_msg=case["id"])
    assert len(lengths) > 2


def test_asd(cases) -> None:
    charged = 0
    for case in cases("asd"):
        rule, sampling = registry.rule("asd")(**case["params"]), Sampling(**case["sampling"])
        state = rule.start([[0]], torch.device("cpu"))
        for i, given in enumerate(case["blocks"]):
            v, where = verification({**given, "kind": ""}, sampling, state), f"{case['id']} block {i}"
            path, token = assert_outcome(rule, v, given["expected"], where)
            state = rule.next_state(v, path, token)
            assert float(state["spent"]) == pytest.approx(given["expected"]["spent"], abs=1e-5), where
        charged += float(state["spent"]) > 0
    assert charged > 10


def test_relaxed_topk(cases) -> None:
    changes = 0
    for case in cases("relaxed_topk"):
        rule, sampling = registry.rule("relaxed_topk")(span="thinking", **case["params"]), Sampling(**case["sampling"])
        harmless = next(i for i in range(20) if i not in (rule.begin, rule.end))
        state = rule.start([[*case["prompt"], harmless]], torch.device("cpu"))
        for i, given in enumerate(case["blocks"]):
            expected, where = given["expected"], f"{case['id']} block {i}"
            assert rule.delta * bool(state["thinking"]) == expected["delta_in_force"], where
            v = verification({**given, "kind": ""}, sampling, state)
            path, token = assert_outcome(rule, v, expected, where)
            state = rule.next_state(v, path, token)
            assert rule.delta * bool(state["thinking"]) == expected["delta_after"], where
            changes += expected["delta_in_force"] != expected["delta_after"]
    assert changes > 3
