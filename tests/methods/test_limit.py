"""No rule keeps more tokens for its divergence than `tilted`, between lossless decoding and the longest path."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from methods import registry
from methods.distortion import compared, keep_probability, sampled_law, tree_law
from methods.rules.base import Rule
from methods.rules.verification import Verification
from methods.rules.whole import tilted
from methods.sampling import Sampling
from tests.helpers.rule_cases import random_case
from tests.helpers.rule_table import with_states

WARM, PRICES = Sampling(1.0), (0.1, 0.3, 1.0, 3.0)
RULES = [("lossless", {}), ("lossless", {"q_mode": "draft"}), ("mars", {}), ("random", {"rate": 0.3}),
         ("mars", {"variant": "sampling", "theta": 0.5}), ("typical", {}), ("fsd", {"threshold": 0.3}),
         ("threshold", {"single": 0.3}), *(("tilted", {"lam": lam}) for lam in PRICES)]
DRAWN = [*RULES, ("cactus", {}), ("lossy", {}), ("cascade_tok", {}), ("ensemble", {"w": 0.5})]


def of_tree(rule: Rule, v: Verification) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row: expected tokens kept, and expected divergence over the contexts that are visited."""
    kept = keep_probability(rule, v) * (v.draft.valid & (v.draft.depth > 0))
    first = kept * torch.where(v.earlier_siblings, 1 - kept[:, None, :], 1.0).prod(-1)
    visited = torch.where(v.draft.depth == 0, 1.0, 0.0).double()
    for node in range(1, v.draft.nodes):
        visited[:, node] = visited.gather(1, v.parent[:, node:node + 1])[:, 0] * first[:, node]
    rows, nodes = v.draft.valid.nonzero(as_tuple=True)
    nats = torch.zeros_like(visited)
    nats[rows, nodes] = compared(v.logits[rows, nodes], tree_law(rule, v, rows, nodes, first), v.sampling)[:, 0]
    return visited[:, 1:].sum(1), (visited * nats).sum(1)


def best(v: Verification, row: int, lam: float, node: int = 0) -> float:
    """The value of a context by the soft dynamic programme."""
    parents = v.draft.parents.expand(v.draft.tokens.shape)[row].tolist()
    p = v.logits[row, node].double().softmax(-1).numpy()
    children = [i for i, parent in enumerate(parents) if i and parent == node and v.draft.valid[row, i]]
    weights = p.copy()
    for child in children:
        weights[int(v.draft.tokens[row, child])] *= math.exp((1 + best(v, row, lam, child)) / lam)
    return lam * math.log(weights.sum())


@pytest.mark.parametrize("lam", PRICES)
def test_no_rule_lies_above_the_limit_on_the_same_trees(lam: float) -> None:
    """E[kept] − λ E[sum of KL] of every rule is at most the programme's value, which `tilted` at that λ attains."""
    v = with_states(random_case(5, WARM, sampled=False, tree=True))
    limit = torch.tensor([best(v, row, lam) for row in range(len(v.u))], dtype=torch.float64)
    for name, options in RULES:
        kept, nats = of_tree(registry.rule(name)(**options), v)
        assert (kept - lam * nats <= limit + 1e-5).all(), name
        if options.get("lam") == lam:
            assert torch.allclose(kept - lam * nats, limit, atol=1e-5)


def test_no_policy_of_a_small_tree_lies_above_the_limit() -> None:
    """A root with two children, one of which has one: free laws of all three contexts, optimised numerically."""
    rng, lam = np.random.default_rng(0), 0.7
    p = rng.dirichlet(np.ones(4), 3)  # the root, its child 0, and the child 1, behind which token 2 is drafted

    def objective(free: np.ndarray) -> float:
        r = np.exp(free.reshape(3, 4))
        r /= r.sum(1, keepdims=True)
        nats = (r * np.log(r / p)).sum(1)
        kept = r[0, 0] + r[0, 1] * (1 + r[2, 2])
        return -(kept - lam * (nats[0] + r[0, 0] * nats[1] + r[0, 1] * nats[2]))

    found = -min(minimize(objective, rng.normal(size=12), method="BFGS").fun for _ in range(8))
    second = lam * math.log(p[2, 2] * math.exp(1 / lam) + 1 - p[2, 2])
    first = lam * math.log(p[0, 0] * math.exp(1 / lam) + p[0, 1] * math.exp((1 + second) / lam) + p[0, 2] + p[0, 3])
    assert found == pytest.approx(first, abs=1e-5)


@pytest.mark.parametrize("lam", PRICES)
def test_no_rule_lies_above_the_limit_on_drawn_tokens(lam: float) -> None:
    v = with_states(random_case(6, WARM, sampled=True, tree=False, nodes=4))
    rows, nodes = (v.draft.valid & (torch.arange(v.draft.nodes) < v.drafted[:, None])).nonzero(as_tuple=True)
    p, q = v.p[rows, nodes].double(), v.q[rows, nodes].double()

    def value(law: torch.Tensor) -> torch.Tensor:
        """Of [M, V]: no test keeps more than min(q, R) of the mass."""
        return torch.minimum(q, law).sum(-1) - lam * (torch.xlogy(law, law) - law * p.log()).sum(-1)

    limit = value(tilted(p, q, lam))
    for name, options in DRAWN:
        rule = registry.rule(name)(**options)
        law = sampled_law(rule, v, rows, nodes)
        if rule.drawn_law(v.p[0], v.q[0]) is not None:  # what it states is what it does
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(rule), "drawn_law", Rule.drawn_law)
                assert torch.allclose(law, sampled_law(rule, v, rows, nodes), atol=1e-5)
        assert (value(law) <= limit + 1e-6).all(), name
        if options.get("lam") == lam:
            assert torch.allclose(law, tilted(p, q, lam), atol=1e-5)


def test_its_ends_are_lossless_and_the_longest_path() -> None:
    v = with_states(random_case(5, WARM, sampled=False, tree=True))
    lossless, _ = of_tree(registry.rule("lossless")(), v)
    kept, nats = of_tree(registry.rule("tilted")(lam=1e5), v)
    assert torch.allclose(kept, lossless, atol=1e-3) and (nats < 1e-6).all()
    kept, _ = of_tree(registry.rule("tilted")(lam=0.01), v)
    assert torch.allclose(kept, (v.draft.depth * v.draft.valid).amax(1).double(), atol=1e-3)
    p, q = torch.rand(2, 5, 12, generator=torch.Generator().manual_seed(0)).add(0.01).double()
    p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
    assert torch.allclose(tilted(p, q, 1e5), p, atol=1e-4) and torch.allclose(tilted(p, q, 0.01), q, atol=1e-9)
