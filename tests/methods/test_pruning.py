"""Pruning of draft trees, against brute force on a thousand random trees."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.pruning import TIE, Pruning
from methods.rules.base import DraftCapabilities
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.rule_cases import random_case

ROWS = 4


def random_draft(seed: int, nodes: int) -> tuple[Draft, torch.Tensor]:
    """Trees with siblings of falling probability, and root entropies."""
    case = random_case(
        seed, Sampling(1.0), sampled=False, tree=True, rows=ROWS, nodes=nodes, vocab=24
    )
    draft = case.draft
    draft.logits = draft.logits.nan_to_num()
    draft.q = (10 * draft.q).ceil() / 10  # coarse, so that ties happen
    return draft, torch.rand(ROWS, generator=torch.Generator().manual_seed(seed))


def brute_force(p: Pruning, draft: Draft, row: int, h: float) -> set[int]:
    """The kept nodes of one row, walking down depth by depth."""
    nodes = [i for i in range(draft.nodes) if draft.valid[row, i]]
    parent = {i: int(draft.parents[row, i]) for i in nodes}
    depth, reach = {0: 0}, {0: 1.0}
    for i in nodes[1:]:
        depth[i] = depth[parent[i]] + 1
        reach[i] = reach[parent[i]] * float(draft.q[row, i])
    factor = {
        "entropy": lambda d: math.exp(-p.decay * d * h),
        "accum_prob": lambda d: 1.0,
        "depth": lambda d: 1 + p.alpha * d,
        "depth_exp": lambda d: math.exp(p.alpha * d),
    }[p.score]
    s = {i: reach[i] * factor(depth[i]) for i in nodes}

    by_depth, epsilon = p.score == "entropy", p.epsilon
    groups = [nodes[1:]]
    if by_depth:
        groups = [[i for i in nodes if depth[i] == d] for d in range(1, max(depth.values()) + 1)]
        if p.budget is not None:
            epsilon = min(epsilon, p.budget / max(len(groups), 1))
    passing = set()
    for peers in groups:
        scores = sorted((s[i] for i in peers), reverse=True)
        enough = (1 - epsilon) * sum(scores) * (1 - 1e-12)
        held = zip(scores, accumulate(scores), strict=True)
        theta = next((score for score, mass in held if mass >= enough), 0.0)
        passing |= {i for i in peers if s[i] >= theta * (1 - TIE)}
    if by_depth:
        passing -= {i for i in nodes if i not in parent.values() and s[i] < p.leaf}
    kept = {0}
    for i in sorted(nodes[1:], key=depth.get):
        siblings = [j for j in nodes[1:] if parent[j] == parent[i]]
        best = min(j for j in siblings if s[j] >= max(s[k] for k in siblings) * (1 - TIE))
        rescued = by_depth and passing.isdisjoint(siblings) and i == best
        if parent[i] in kept and (i in passing or rescued):
            kept.add(i)
    return kept


options = st.builds(
    Pruning,
    score=st.sampled_from(["entropy", "accum_prob", "depth", "depth_exp"]),
    epsilon=st.sampled_from([0.0, 0.0537, 0.213, 0.481]),
    budget=st.sampled_from([None, 0.0991]),
    leaf=st.sampled_from([0.0, 0.0173, 0.0937]),
    decay=st.sampled_from([0.0, 1.0, 3.0]),
)
drafts = st.builds(random_draft, st.integers(0, 10**6), st.integers(8, 24))


@settings(max_examples=250, deadline=None)
@given(options, drafts)
def test_what_is_kept_is_brute_forces_and_the_same_tree_without_the_dropped(
    p: Pruning, case: tuple[Draft, torch.Tensor]
) -> None:
    """Four trees an example, so 1000 of them."""
    draft, entropy = case
    kept, (small, drafted, dropped) = p.kept(draft, entropy), p.prune(draft, entropy)
    for row in range(ROWS):
        old = kept[row].nonzero()[:, 0]
        assert set(old.tolist()) == brute_force(p, draft, row, float(entropy[row]))
        nodes, left = int(draft.valid[row].sum()), len(old)
        assert (drafted[row], dropped[row]) == (nodes - 1, nodes - left)
        assert small.valid[row].tolist() == [True] * left + [False] * (small.nodes - left)
        for name in ("tokens", "depth", "q", "logits"):
            assert torch.equal(getattr(small, name)[row, :left], getattr(draft, name)[row, old])
        assert small.parents[row, 0] == -1
        assert torch.equal(old[small.parents[row, 1:left]], draft.parents[row, old[1:]])
        assert torch.equal(small.ancestors[row, :left, :left], draft.ancestors[row, old][:, old])
    assert small is draft if not any(dropped) else small.nodes == int(kept.sum(1).max())


def test_a_chain_stays_a_chain() -> None:
    q = torch.tensor([[1.0, 0.9, 0.5, 0.01, 0.9]])
    draft = Draft.of_chain(torch.arange(5)[None], q=q)
    small = Pruning(score="accum_prob", epsilon=0.1).prune(draft, torch.zeros(1))[0]
    assert small.chain and small.tokens.tolist() == [[0, 1, 2]]


def test_drawn_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match="model_greedy"):
        Pruning().check(DraftCapabilities("model", has_q=True, sampled=True))
