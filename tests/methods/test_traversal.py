"""Traversal verification against its recursive float64 version and the golden cases."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from methods.rules.base import DraftCapabilities
from methods.rules.block import Block
from methods.rules.traversal import Traversal, alphas
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.rule_cases import random_case
from tests.helpers.traversal_reference import build, traversal

WARM = Sampling(1.0)


def verification(case: dict) -> Verification:
    """A golden tree; contexts without children have NaN draft logits, nobody may read them."""
    sampling, vocab = Sampling(**case["sampling"]), len(case["target_logits"][0])
    z, tokens = torch.tensor([case["target_logits"]]), torch.tensor([case["tokens"]])
    draft_z = torch.tensor([[row or [torch.nan] * vocab for row in case["draft_logits"]]])
    own = sampling.probs(draft_z)[0, case["parents"], case["tokens"]]
    draft = Draft.of_parents(tokens, torch.tensor([case["parents"]]), sampled=True, logits=draft_z, q=own[None])
    draft.replacement = case["params"]["replacement"]
    return Verification(draft, z, sampling, torch.tensor([case["u"]]))


def test_golden(golden) -> None:
    lengths = set()
    for case in json.loads(golden("more_rules/traversal.json").read_text())["cases"]:
        v, expected = verification(case), case["expected"]
        tested = alphas(v)[1]
        for node, probability, _ in expected["tests"]:
            assert float(tested[0, node]) == pytest.approx(probability, abs=1e-5), (case["id"], node)
        path = walk(v, Traversal().decide(v))
        assert path.kept[0].nonzero().flatten().tolist() == [0, *expected["path"]], case["id"]
        weights = Traversal().emit(v, path.last)[0].double()
        np.testing.assert_allclose(weights / weights.sum(), expected["emit"], atol=1e-5, err_msg=case["id"])
        lengths.add(len(expected["path"]))
    assert len(lengths) > 2


@pytest.mark.parametrize("sampling", [WARM, Sampling(0.7, top_k=6, top_p=0.9)], ids=str)
def test_recursion(sampling: Sampling) -> None:
    """Random trees with padding: every node's test probability, the path and the emitted distribution."""
    lengths = set()
    for seed in range(6):
        v = random_case(seed, sampling, sampled=True, tree=True)
        entry, tested = alphas(v)
        path = walk(v, Traversal().decide(v))
        weights = Traversal().emit(v, path.last).double()
        for row in range(len(v.u)):
            size = int(v.draft.valid[row].sum())
            p, q = ([x[row, i].double().numpy() for i in range(size)] for x in (v.p, sampling.probs(v.draft_logits)))
            tokens, parents = (x[row, :size].tolist() for x in (v.draft.tokens, v.draft.parents))
            tests = traversal(build(tokens, parents, p, q), replacement=True)
            chosen = next(node for node, alpha in tests.order if node == 0 or v.u[row, node] < alpha)
            for node, alpha in tests.order:
                assert float(tested[row, node]) == pytest.approx(alpha, abs=1e-4)  # float32 near 0/0
            assert int(path.last[row]) == chosen
            np.testing.assert_allclose(weights[row] / weights[row].sum(), tests.emit[chosen], atol=1e-5)
            lengths.add(int(path.length[row]))
        assert not (path.kept & ~v.draft.valid).any() and (entry >= 0).all()
    assert len(lengths) > 2


def test_a_chain_has_the_lengths_of_block() -> None:
    """P(length >= i) of block is that of its last passing prefix; the same number comes out of traversal."""
    for seed in range(4):
        v = random_case(seed, WARM, sampled=True, tree=False, nodes=5)
        for rule in (Block(), Traversal()):
            weights = rule.emit(v, torch.zeros(len(v.u), dtype=torch.long))
            assert torch.isfinite(weights).all()
        z = Verification(v.draft, v.logits, WARM, torch.full_like(v.u, 0.5))
        deepest_first = walk(z, Traversal().decide(z)).length
        assert torch.equal(deepest_first, walk(z, Block().decide(z)).length)


def test_point_masses_are_refused() -> None:
    with pytest.raises(ValueError, match=r"drafter=eagle3 draws none: use drafter=model drafter\.branching") as refusal:
        Traversal().check(DraftCapabilities("eagle3", has_q=True, sampled=False, chain=False), WARM)
    assert "\n" not in str(refusal.value)
    Traversal().check(DraftCapabilities("eagle3", has_q=True, sampled=False, chain=False), Sampling(0.0))
