"""Rules of production engines and of arXiv 2607.08690 against outcomes of their authors' functions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from methods import registry
from methods.rules.base import Rule
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.one_token import every_token
from tests.helpers.rule_cases import acceptance

RULES = ["cactus", "lossy", "cascade_opt", "cascade_tok", "r_fuzzy", "ensemble", "contrastive", "entropy_verify",
         "ears"]


def assert_close(found: Any, expected: Any, where: str) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=where)


@pytest.fixture
def cases(golden):
    def load(name: str) -> list[dict[str, Any]]:
        return json.loads(golden(f"more_rules/{name}.json").read_text())["cases"]
    return load


def rule_of(name: str, params: dict[str, Any]) -> Rule:
    return registry.rule(name)(**{key: value for key, value in params.items() if key != "draft"})


@pytest.mark.parametrize("name", RULES)
def test_one_token(cases, name: str) -> None:
    compared = 0
    for case in cases(name):
        rule, sampling, expected = rule_of(name, case["params"]), Sampling(**case["sampling"]), case["expected"]
        logits, draft_logits = (torch.tensor([case[key]]) for key in ("target_logits", "draft_logits"))
        one = every_token(rule, logits, draft_logits, sampling, sampled=case["params"].get("draft") != "one_hot")
        assert_close(one.accept[0, case["token"]], expected["accept"], case["id"])
        for token, accept in enumerate(expected.get("accept_by_token", [])):
            if accept is not None:
                assert_close(one.accept[0, token], accept, f"{case['id']} token {token}")
        if expected["residual"] is not None:
            assert_close(one.emit[0, case["token"]], expected["residual"], case["id"])
            compared += 1
    assert compared > 10


def siblings(case: dict[str, Any], u: list[float]) -> Verification:
    """The children of one context, or a tree, with a number for each node."""
    tree = case["kind"] == "tree"
    tokens = case["tokens"] if tree else [0, *case["children"]]
    parents = case["parents"] if tree else [-1] + [0] * len(case["children"])
    logits = torch.tensor(case["target_logits"])
    if logits.dim() == 1:
        logits = logits.expand(len(tokens), -1)
    draft = Draft.of_parents(torch.tensor([tokens]), torch.tensor([parents]))
    return Verification(draft, logits[None], Sampling(**case["sampling"]), torch.tensor([u]))


def test_threshold_in_one_context(cases) -> None:
    compared = 0
    for case in cases("threshold"):
        if case["kind"] == "tree":
            continue
        v = siblings(case, [0.0] * (1 + len(case["children"])))
        rule, expected = rule_of("threshold", case["params"]), case["expected"]
        reached = 1.0
        for accept, in_turn, outcome in zip(acceptance(rule, v)[0, 1:], expected["accept_in_turn"],
                                            expected["outcome"], strict=True):
            if in_turn is not None:
                assert_close(accept, in_turn, case["id"])
            assert_close(reached * accept, outcome, case["id"])
            reached *= 1.0 - float(accept)
            compared += 1
        if expected["residual"] is not None:
            weights = rule.emit(v, torch.tensor([0]))[0].double()
            assert_close(weights / weights.sum(), expected["residual"], case["id"])
    assert compared > 40


def node_numbers(case: dict[str, Any]) -> list[float]:
    """A number for each node that decides as the one coin c of its context: given that the earlier siblings, of mass S,
    were rejected, (c acc - S)/(acc - S) is uniform again."""
    acc, sampling = case["params"]["acc"], Sampling(**case["sampling"])
    p = sampling.probs(torch.tensor(case["target_logits"])).double()
    mass = [0.0] * len(case["tokens"])
    u = [0.0]
    for node, parent in list(enumerate(case["parents"]))[1:]:
        coin, earlier = case["u_context"][parent], mass[parent]
        u.append(min(max((coin * acc - earlier) / (acc - earlier), 0.0), 1.0) if acc > earlier else 0.0)
        mass[parent] += float(p[parent, case["tokens"][node]])
    return u


def test_threshold_on_trees(cases) -> None:
    lengths = set()
    for case in cases("threshold"):
        if case["kind"] != "tree":
            continue
        rule, v = rule_of("threshold", case["params"]), siblings(case, node_numbers(case))
        kept = walk(v, rule.decide(v))
        path = kept.kept[0].nonzero().flatten().tolist()
        assert path[1:] == case["expected"]["path"], case["id"]
        weights = rule.emit(v, kept.last)[0].double()
        assert_close(weights / weights.sum(), case["expected"]["emit"], case["id"])
        lengths.add(len(path))
    assert len(lengths) > 1
