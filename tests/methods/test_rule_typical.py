"""Typical acceptance against a slow float64 version that lists every path, and at the ends of its options."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.rules.greedy import Greedy
from methods.rules.typical import Typical
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers import rule_reference as reference
from tests.helpers.rule_cases import random_case

COLD, WARM, NARROW = Sampling(0.0), Sampling(1.0), Sampling(0.7, top_k=6, top_p=0.9)
OPTIONS = [{}, {"variant": "released"}, {"epsilon": 0.02, "delta": 0.1}, {"epsilon": 0.5, "delta": 0.9},
           {"epsilon": 1.0, "delta": 0.5, "correction": "sample"},
           {"variant": "released", "epsilon": 0.6, "delta": 0.05, "correction": "sample"}]


def distribution(context: reference.Context, sampling: Sampling, variant: str) -> np.ndarray:
    if sampling.greedy or variant == "paper":
        return context.p
    return reference.softmax(context.z / sampling.temperature)


def threshold(p: np.ndarray, rule: Typical) -> float:
    if rule.variant == "released":
        entropy = -sum(x * math.log(x + 1e-5) for x in p)
    else:
        entropy = -sum(x * math.log(x) for x in p if x > 0)
    return min(rule.epsilon, rule.delta * math.exp(-entropy))


def slow(tree: reference.Tree, rule: Typical, sampling: Sampling) -> tuple[list[int], np.ndarray, tuple]:
    """All paths whose every node is accepted; the longest, then the likeliest, then the first in node order."""
    paths, queue = [], [([0], 0.0, (0, 0))]
    while queue:
        path, log_p, not_strict = queue.pop()
        paths.append((path, log_p, not_strict))
        context, children = tree[path[-1]]
        p = distribution(context, sampling, rule.variant)
        for child in children:
            if p[child.token] > threshold(p, rule):
                strict = reference.strict_accepts(context, children[:children.index(child)], child)
                relaxed, greedier = not_strict
                if not strict and child.token == context.z.argmax():
                    greedier += 1
                elif not strict:
                    relaxed += 1
                queue.append(([*path, child.node], log_p + math.log(p[child.token]), (relaxed, greedier)))
    path, _, not_strict = min(paths, key=lambda found: (-len(found[0]), -found[1], found[0][-1]))
    context = tree[path[-1]][0]
    greedy = sampling.greedy or rule.correction == "greedy"
    return path, np.eye(len(context.z))[context.z.argmax()] if greedy else context.p, not_strict


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("sampling", [COLD, WARM, NARROW], ids=str)
def test_same_path_and_emission(options: dict, sampling: Sampling) -> None:
    rule, lengths, not_first, relaxations = Typical(**options), set(), 0, 0
    for seed, sampled, tree in itertools.product(range(6), (False, True), (False, True)):
        if sampled and sampling.greedy:
            continue
        v = random_case(seed, sampling, sampled=sampled, tree=tree, shift=(4.0, -1.0)[seed % 2])
        kept = walk(v, rule.decide(v))
        weights = rule.emit(v, kept.last)
        token = rule.next_token(v, kept.last, torch.full((len(kept.last),), 0.4))
        assert (weights.gather(1, token[:, None]) > 0).all()
        for row in range(len(v.u)):
            contexts = reference.contexts(v, row)
            path, expected, not_strict = slow(contexts, rule, sampling)
            where = f"seed {seed} sampled {sampled} tree {tree} row {row}"
            assert kept.kept[row].nonzero().flatten().tolist() == path, where
            assert (int(kept.relaxed_count[row]), int(kept.greedier_count[row])) == not_strict, where
            np.testing.assert_allclose(weights[row].double() / weights[row].double().sum(), expected, atol=2e-6)
            lengths.add(len(path))
            relaxations += not_strict[0]
            for parent, node in itertools.pairwise(path):
                not_first += contexts[parent][1][0].node != node
    assert len(lengths) > 3 and not_first > 0
    assert (relaxations > 0) != sampling.greedy


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.booleans())
def test_ends(seed: int, tree: bool, sampled: bool) -> None:
    v = random_case(seed, WARM, sampled=sampled, tree=tree, rows=3)
    assert walk(v, Typical(epsilon=1.0, delta=1.0).decide(v)).length.sum() < v.draft.valid[:, 1:].sum()
    deepest = torch.where(v.draft.valid, v.draft.depth, 0).amax(1)
    assert torch.equal(walk(v, Typical(epsilon=0.0).decide(v)).length, deepest)  # every possible token is kept
    cold, root = Verification(v.draft, v.logits, COLD, v.u), torch.zeros(3, dtype=torch.long)
    for rule in (Typical(), Typical(variant="released", correction="sample")):
        assert torch.equal(walk(cold, rule.decide(cold)).kept, walk(cold, Greedy().decide(cold)).kept)
        assert torch.equal(rule.emit(cold, root), Greedy().emit(cold, root))


def test_a_looser_threshold_keeps_no_fewer() -> None:
    for seed in range(5):
        v = random_case(seed, WARM, sampled=False, tree=True)
        lengths = [walk(v, Typical(epsilon=e, delta=math.sqrt(e)).decide(v)).length for e in (0.5, 0.09, 0.01)]
        assert (lengths[0] <= lengths[1]).all() and (lengths[1] <= lengths[2]).all()
        assert lengths[0].sum() < lengths[2].sum()


def tree_of(probabilities: dict[tuple[int, ...], list[float]], paths: list[tuple[int, ...]]) -> Verification:
    """Contexts with given distributions; nodes are tokens of the given paths."""
    everything = [(), *paths]
    vocab = len(probabilities[()])
    p = torch.tensor([probabilities.get(path, [1 / vocab] * vocab) for path in everything])
    tokens = torch.tensor([[0, *(path[-1] for path in paths)]])
    parents = torch.tensor([[-1, *(everything.index(path[:-1]) for path in paths)]])
    return Verification(Draft.of_parents(tokens, parents), p.log()[None], WARM, torch.zeros(1, len(everything)))


def test_longest_wins_over_likelier_and_then_the_likelier() -> None:
    p = {(): [0.6, 0.3, 0.1], (1,): [0.5, 0.3, 0.2], (0,): [0.001, 0.001, 0.998]}
    v = tree_of(p, [(0,), (1,), (0, 0), (1, 0), (1, 1)])
    assert walk(v, Typical().decide(v)).kept[0].tolist() == [True, False, True, False, True, False]
    v = tree_of(p, [(0,), (1,), (0, 0)])
    assert walk(v, Typical().decide(v)).kept[0].tolist() == [True, True, False, False]


def test_the_formula_in_one_context() -> None:
    """Uniform over 100 tokens: H = ln 100, so 0.3 exp(-H) = 0.003 < p = 0.01 although 0.01 < epsilon."""
    v = tree_of({(): [0.01] * 100}, [(7,)])
    assert Typical(delta=0.3).decide(v).accept[0, 1]
    assert Typical(delta=0.99).decide(v).accept[0, 1]
    certain = tree_of({(): [0.92, 0.08]}, [(1,)])  # H = 0.279: 0.3 exp(-H) = 0.227, epsilon = 0.09
    assert not Typical().decide(certain).accept[0, 1]
    assert Typical(epsilon=0.07).decide(certain).accept[0, 1]


def test_variants_differ_in_the_distribution_they_judge() -> None:
    """Top-k leaves one token of two near ones: the paper's p has no mass on the other, the released p has."""
    v = tree_of({(): [0.5, 0.45, 0.05]}, [(1,)])
    v.sampling = Sampling(1.0, top_k=1)
    assert not Typical().decide(v).accept[0, 1]
    assert Typical(variant="released").decide(v).accept[0, 1]


@pytest.mark.parametrize("options", [{"epsilon": 1.5}, {"delta": -0.1}, {"alpha": 0.3}, {"variant": "fast"}])
def test_options_are_checked(options: dict) -> None:
    with pytest.raises(ValueError):
        Typical(**options)
