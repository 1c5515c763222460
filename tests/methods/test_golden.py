"""Trees and acceptance against tests/golden: worked out by hand, or by the float64 references."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from methods import registry
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from methods.trees.dynamic import Growth, TreeShape
from methods.trees.static import StaticTree, best_tree, expected_length
from tests.golden.make import acceptance

FOLDER = Path(__file__).parents[1] / "golden"
TREES = json.loads((FOLDER / "trees.json").read_text())
ACCEPTANCE = json.loads((FOLDER / "acceptance.json").read_text())


def named(cases: list[dict]) -> list:
    return [pytest.param(case, id=case["name"]) for case in cases]


@pytest.mark.parametrize("case", named(TREES["masks"]))
def test_masks(case: dict) -> None:
    draft = Draft.of_parents(torch.zeros(1, len(case["parents"]), dtype=torch.long), torch.tensor([case["parents"]]))
    assert draft.depth[0].tolist() == case["depth"]
    assert [row.nonzero().flatten().tolist() for row in draft.ancestors[0]] == case["ancestors"]


@pytest.mark.parametrize("case", named(TREES["static"]))
def test_static_trees(case: dict) -> None:
    tree = StaticTree.of_paths(case["name"], "golden", case["paths"])
    for name in ("parents", "ranks", "depth", "widths"):
        assert list(getattr(tree, name)) == case[name], name


@pytest.mark.parametrize("case", named(TREES["best_tree"]))
def test_best_tree(case: dict) -> None:
    paths = best_tree(case["accuracy"], case["nodes"])
    assert [list(path) for path in paths] == case["paths"]
    tree = StaticTree.of_paths(case["name"], "golden", paths)
    assert expected_length(case["accuracy"], tree) == pytest.approx(case["expected_length"])


@pytest.mark.parametrize("case", named(TREES["dynamic"]))
def test_dynamic_trees(case: dict) -> None:
    for expected in case["trees"]:
        growth = Growth(TreeShape(expected["nodes"], 1, case["top_k"]), torch.device("cpu"))
        top = torch.tensor([[case["root"]]]).log().topk(case["top_k"])
        growth.add(top.indices, top.values)
        tokens, _ = growth.beams()
        behind = torch.tensor([[case["beams"][str(token)] for token in tokens[0].tolist()]]).log().topk(case["top_k"])
        growth.add(behind.indices, behind.values)
        tree = growth.select(torch.zeros(1, 1, dtype=torch.int64))
        assert tree.tokens[0, 1:].tolist() == expected["tokens"] and tree.parents[0].tolist() == expected["parents"]
        assert tree.q[0, 1:].tolist() == pytest.approx(expected["prob"])


def verification(case: dict) -> Verification:
    """A case of acceptance.json as a batch of one."""
    tokens, parents = torch.tensor([case["tokens"]]), torch.tensor([case["parents"]])
    draft = Draft.of_parents(tokens, parents, sampled=case["sampled"], logits=torch.tensor([case["draft_logits"]]),
                             q=torch.tensor([case["q"]]))
    return Verification(draft, torch.tensor([case["logits"]]), Sampling(**case["sampling"]), torch.tensor([case["u"]]))


@pytest.mark.parametrize("case", named(ACCEPTANCE["cases"]))
def test_acceptance(case: dict, tmp_path: Path) -> None:
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps({"groups": ACCEPTANCE["groups"]}))
    target, v = SimpleNamespace(vocab_size=len(case["logits"][0]), device="cpu"), verification(case)
    for result in case["results"]:
        options = result["options"] | ({"groups": groups} if result["rule"] == "coarse_grained" else {})
        rule = registry.rule(result["rule"])(**options).bind(target, None)
        path = walk(v, rule.decide(v))
        where = f"{result['rule']} {result['options']}"
        assert path.kept[0].nonzero().flatten().tolist() == result["path"], where
        assert (int(path.relaxed_count), int(path.greedier_count)) == (result["relaxed"], result["greedier"]), where
        weights = rule.emit(v, path.last)[0].double()
        np.testing.assert_allclose(weights / weights.sum(), result["emitted"], atol=3e-6, err_msg=where)


def test_the_cases_exercise_every_rule() -> None:
    """Every rule keeps paths of several lengths, and those that relax do."""
    lengths, relaxed = {}, set()
    for case in ACCEPTANCE["cases"]:
        for result in case["results"]:
            lengths.setdefault(result["rule"], set()).add(len(result["path"]))
            relaxed |= {result["rule"]} if result["relaxed"] else set()
    assert all(len(seen) > 1 for seen in lengths.values()), lengths
    assert relaxed == set(lengths) - {"greedy"}


def test_the_file_is_that_of_the_references() -> None:
    for computed, stored in zip(acceptance()["cases"], ACCEPTANCE["cases"], strict=True):
        for one, other in zip(computed["results"], stored["results"], strict=True):
            assert one["path"] == other["path"] and one["emitted"] == pytest.approx(other["emitted"], abs=1e-8)
