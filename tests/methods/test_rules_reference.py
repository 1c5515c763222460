"""Every rule against a slow float64 version that walks the tree node by node: same path, same emitted distribution."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
import torch

from methods.rules.base import Rule
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from tests.helpers import rule_reference
from tests.helpers.rule_cases import random_case
from tests.helpers.rule_pairs import PAIRS

GREEDY, WARM = Sampling(0.0), Sampling(1.0)
SETTINGS = [GREEDY, WARM, Sampling(0.7, top_k=6, top_p=0.9)]


@cache
def cases(sampling: Sampling) -> list[tuple[str, Verification, list[rule_reference.Tree]]]:
    """Chains and trees, sampled and deterministic, with positive and with mostly negative logits, 8 rows each."""
    named = []
    for seed, sampled, tree in itertools.product(range(4), (False, True), (False, True)):
        if not (sampled and sampling.greedy):
            v = random_case(seed, sampling, sampled=sampled, tree=tree, shift=(4.0, -1.0)[seed % 2])
            trees = [rule_reference.contexts(v, row) for row in range(len(v.u))]
            named.append((f"seed {seed} sampled {sampled} tree {tree}", v, trees))
    return named


def runs(name: str, sampling: Sampling) -> bool:
    """Greedy has no temperature, contrastive needs one, and temperature 0 has no processed distribution."""
    if sampling.greedy:
        return not ((name.startswith("fsd") and name.endswith("processed")) or name.startswith("contrastive"))
    return not PAIRS[name].rule.greedy_only


def allowed(rule: Rule, v: Verification) -> bool:
    """Some rules are defined for chains, or for sampled candidates, alone."""
    return ((v.draft.chain or not rule.chain_only)
            and (v.draft.sampled or v.sampling.greedy or not rule.sampled_only))


@pytest.mark.parametrize("name,sampling", [(n, s) for n in PAIRS for s in SETTINGS if runs(n, s)], ids=str)
def test_same_path_and_emission(name: str, sampling: Sampling) -> None:
    pair, lengths, relaxed = PAIRS[name], set(), 0
    for case, given, trees in cases(sampling):
        if not allowed(pair.rule, given):
            continue
        v = pair.prepare(given)
        kept = walk(v, pair.rule.decide(v))
        weights = pair.rule.emit(v, kept.last)
        assert torch.isfinite(weights).all() and (weights >= 0).all()
        for row, tree in enumerate(trees):
            path, expected, not_strict = pair.expected(v, row, tree)
            where = f"{case} row {row}"
            assert kept.kept[row].nonzero().flatten().tolist() == path, where
            assert int(kept.last[row]) == path[-1] and int(kept.length[row]) == len(path) - 1, where
            assert (int(kept.relaxed_count[row]), int(kept.greedier_count[row])) == not_strict, where
            emitted = weights[row].double().numpy() / float(weights[row].double().sum())
            np.testing.assert_allclose(emitted, expected, atol=3e-6, err_msg=where)
            lengths.add(len(path))
            relaxed += not_strict[0]
    assert len(lengths) > 2, "the cases must exercise short and long paths"
    assert (relaxed > 0) == (pair.relaxes in (["always"] if sampling.greedy else ["always", "warm"]))


@pytest.mark.parametrize("name", PAIRS)
def test_shortcut_draws_from_emit(name: str) -> None:
    """`next_token` may skip the draw, but only where `emit` is a point mass on the same token."""
    rule = PAIRS[name].rule
    for sampling in (GREEDY, WARM):
        if not runs(name, sampling):
            continue
        sampled = rule.sampled_only and not sampling.greedy
        v = PAIRS[name].prepare(random_case(7, sampling, sampled=sampled, tree=not rule.chain_only))
        last = walk(v, rule.decide(v)).last
        token, weights = rule.next_token(v, last, torch.full((len(last),), 0.4)), rule.emit(v, last)
        assert (weights.gather(1, token[:, None]) > 0).all()
        if rule.emits_argmax(sampling):
            assert ((weights > 0).sum(1) == 1).all()
