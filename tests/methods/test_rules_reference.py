"""Every rule against a slow float64 version that walks the tree node by node: same path, same emitted distribution."""

from __future__ import annotations

import itertools
from functools import cache, partial

import numpy as np
import pytest
import torch

from methods.rules.base import Rule
from methods.rules.fsd import Fsd
from methods.rules.greedy import Greedy
from methods.rules.lossless import Lossless
from methods.rules.mars import Mars
from methods.rules.random import Random
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from tests.helpers import rule_reference as reference
from tests.helpers.rule_cases import random_case

GREEDY, WARM = Sampling(0.0), Sampling(1.0)
SETTINGS = [GREEDY, WARM, Sampling(0.7, top_k=6, top_p=0.9)]


def mars(**options) -> tuple[Rule, reference.Local]:
    return Mars(**options), partial(reference.mars, **{"variant": "algorithm1", "theta": 0.9} | options)


def fsd(**options) -> tuple[Rule, reference.Local]:
    kind, threshold = options.pop("divergence"), options.pop("threshold")
    return (Fsd(divergence=kind, threshold=threshold, **options),
            partial(reference.fsd, kind=kind, threshold=threshold, **options))


RULES = {
    "greedy": (Greedy(), reference.greedy),
    "lossless": (Lossless(), reference.lossless),
    "lossless draft": (Lossless(q_mode="draft"), partial(reference.lossless, q_mode="draft")),
    "mars algorithm1": mars(),
    "mars algorithm1 0.5": mars(theta=0.5),
    "mars algorithm1 prob": mars(indicator="prob_ratio", theta=0.3),
    "mars algorithm1 margin": mars(indicator="logit_margin", theta=0.1),
    "mars sampling": mars(variant="sampling", theta=0.8),
    "mars sampling draft": mars(variant="sampling", q_mode="draft"),
    "mars released": mars(variant="released", q_mode="draft"),
    "mars released exact": mars(variant="released", theta=0.7),
    "fsd": fsd(divergence="js_released", threshold=0.15),
    "fsd greedy": fsd(divergence="js", threshold=0.1, correction="greedy"),
    "fsd kl": fsd(divergence="kl", threshold=0.4),
    "fsd kl_released": fsd(divergence="kl_released", threshold=0.4),
    "fsd tv": fsd(divergence="tv", threshold=0.3),
    "fsd processed": fsd(divergence="tv", threshold=0.3, processed=True),
    "fsd kl processed": fsd(divergence="kl", threshold=1.0, processed=True),
    "random": (Random(rate=0.6), partial(reference.random, rate=0.6)),
}


@cache
def cases(sampling: Sampling) -> list[tuple[str, Verification, list[reference.Tree]]]:
    """Chains and trees, sampled and deterministic, with positive and with mostly negative logits, 8 rows each."""
    found = []
    for seed, sampled, tree in itertools.product(range(4), (False, True), (False, True)):
        if not (sampled and sampling.greedy):
            v = random_case(seed, sampling, sampled=sampled, tree=tree, shift=(4.0, -1.0)[seed % 2])
            trees = [reference.contexts(v, row) for row in range(len(v.u))]
            found.append((f"seed {seed} sampled {sampled} tree {tree}", v, trees))
    return found


def runs(name: str, sampling: Sampling) -> bool:
    """Greedy has no temperature, and temperature 0 has no processed distribution."""
    if sampling.greedy:
        return not name.endswith("processed")
    return name != "greedy"


@pytest.mark.parametrize("name,sampling", [(n, s) for n in RULES for s in SETTINGS if runs(n, s)], ids=str)
def test_same_path_and_emission(name: str, sampling: Sampling) -> None:
    rule, local = RULES[name]
    lengths = set()
    for case, v, trees in cases(sampling):
        decision = rule.decide(v)
        kept = walk(v, decision)
        weights = rule.emit(v, kept.last)
        assert torch.isfinite(weights).all() and (weights >= 0).all()
        for row, tree in enumerate(trees):
            path, expected, not_strict = reference.walk(tree, local)
            where = f"{case} row {row}"
            assert kept.kept[row].nonzero().flatten().tolist() == path, where
            assert int(kept.last[row]) == path[-1] and int(kept.length[row]) == len(path) - 1, where
            assert (int(kept.relaxed_count[row]), int(kept.greedier_count[row])) == not_strict, where
            emitted = weights[row].double().numpy() / float(weights[row].double().sum())
            np.testing.assert_allclose(emitted, expected, atol=2e-6, err_msg=where)
            lengths.add(len(path))
    assert len(lengths) > 3, "the cases must exercise short and long paths"


@pytest.mark.parametrize("name", RULES)
def test_shortcut_draws_from_emit(name: str) -> None:
    """`next_token` may skip the draw, but only where `emit` is a point mass on the same token."""
    rule, _ = RULES[name]
    for sampling in (GREEDY, WARM):
        v = random_case(7, sampling, sampled=False, tree=True)
        last = walk(v, rule.decide(v)).last
        token, weights = rule.next_token(v, last, torch.full((len(last),), 0.4)), rule.emit(v, last)
        assert (weights.gather(1, token[:, None]) > 0).all()
        if rule.emits_argmax(sampling):
            assert ((weights > 0).sum(1) == 1).all()
