"""Typical acceptance at the ends of its options, and by hand."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.rules.greedy import Greedy
from methods.rules.typical import Typical
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.rule_cases import random_case

COLD, WARM = Sampling(0.0), Sampling(1.0)


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
