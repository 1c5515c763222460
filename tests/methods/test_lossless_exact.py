"""Block and traversal verification emit exactly the target's law: every draft and every outcome enumerated, float64.

No draws and no tolerance beyond rounding; and neither keeps less than token-wise verification."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from methods.rules.base import Rule
from methods.rules.block import Block, thresholds
from methods.rules.lossless import Lossless
from methods.rules.traversal import Traversal, alphas
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from tests.helpers.rule_cases import outcomes, with_u
from tests.helpers.toy_trees import Toy, emitted_law, mean_length, total_variation

SETTINGS = [Sampling(1.0), Sampling(0.7, top_k=2)]
TREES = [((2, 2), 2), ((2,), 3), ((3,), 2), ((1, 2), 2)]


def at_every_node(rule: Rule, v: Verification) -> list[Tensor]:
    rule.decide(v)
    return [rule.emit(v, torch.full((len(v.u),), node)) for node in range(v.draft.nodes)]


def block_stops(v: Verification) -> Tensor:
    """[B, N] P(the kept prefix ends at the node): the deepest that passes its own test."""
    h = torch.where(v.draft.valid, thresholds(v), 0.0)
    h[:, 0] = 1.0
    later = (1.0 - h).flip(1).cumprod(1).flip(1).roll(-1, 1)
    later[:, -1] = 1.0
    return h * later


def traversal_stops(v: Verification) -> Tensor:
    """[B, N] P(the node is accepted): it passes, and none did that is tested before it, children first."""
    tested = torch.where(v.draft.valid, alphas(v)[1], 0.0)
    parents, stops, untested = v.draft.parents[0].tolist(), torch.zeros_like(tested), torch.ones_like(tested[:, 0])

    def visit(node: int) -> None:
        nonlocal untested
        for child in (i for i, parent in enumerate(parents) if parent == node):
            visit(child)
        stops[:, node] = untested * tested[:, node]
        untested = untested * (1.0 - tested[:, node])

    visit(0)
    return stops


def token_wise_stops(v: Verification) -> Tensor:
    stops = torch.zeros_like(v.u)
    for row, paths in enumerate(outcomes(Lossless(), v)):
        for path, mass in paths.items():
            stops[row, path[-1]] += mass
    return stops


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_block_on_chains(seed: int, sampling: Sampling) -> None:
    toy = Toy.random(seed, sampling)
    for length in (1, 2, 3):
        v, mass = toy.drafts((), length, replacement=True)
        law = toy.continued(emitted_law(v, mass, block_stops(v), at_every_node(Block(), v)), length + 1)
        assert total_variation(law, toy.law(length + 1)) < 1e-12
        gain = mean_length(v, mass, block_stops(v)) - mean_length(v, mass, token_wise_stops(v))
        assert gain > (1e-3 if length > 1 and sampling.top_k == 0 else -1e-6)
        torch.testing.assert_close(block_stops(v), traversal_stops(v), rtol=0, atol=1e-12)


@pytest.mark.parametrize("replacement", [True, False], ids=["independent", "distinct"])
@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("branching,depth", TREES, ids=str)
def test_traversal_on_trees(branching: tuple[int, ...], depth: int, sampling: Sampling, replacement: bool) -> None:
    for seed in range(2):
        toy = Toy.random(seed, sampling)
        v, mass = toy.drafts(branching, depth, replacement)
        assert float(mass.sum()) == pytest.approx(1.0)
        stops = traversal_stops(v)
        law = toy.continued(emitted_law(v, mass, stops, at_every_node(Traversal(), v)), depth + 1)
        assert total_variation(law, toy.law(depth + 1)) < 1e-12
        token_wise = token_wise_stops(v)
        assert mean_length(v, mass, stops) > mean_length(v, mass, token_wise) - 1e-6
        law = toy.continued(emitted_law(v, mass, token_wise, at_every_node(Lossless(), v)), depth + 1)
        assert total_variation(law, toy.law(depth + 1)) < 1e-6  # its tests are found by bisection


def test_equal_models_keep_everything() -> None:
    toy = Toy.random(0, Sampling(1.0))
    twin = Toy(toy.target, toy.target, toy.sampling)
    for replacement in (True, False):
        v, mass = twin.drafts((2, 2), 2, replacement)
        assert mean_length(v, mass, traversal_stops(v)) == pytest.approx(2.0, abs=1e-12)


def ascend_bias(seed: int, length: int, draws: int = 400) -> float:
    """Total variation of the variant of vllm-ascend, the uniforms drawn."""
    toy = Toy.random(seed, Sampling(1.0))
    v, mass = toy.drafts((), length, replacement=True)
    rule, stops = Block(variant="ascend"), torch.zeros_like(v.u)
    g = torch.Generator().manual_seed(seed)
    for _ in range(draws):
        drawn = with_u(v, torch.rand(v.u.shape, generator=g, dtype=torch.float64))
        last = walk(drawn, rule.decide(drawn)).last
        stops.scatter_add_(1, last[:, None], torch.full_like(v.u[:, :1], 1 / draws))
    law = emitted_law(v, mass, stops, at_every_node(rule, v))
    return total_variation(toy.continued(law, length + 1), toy.law(length + 1))


def test_the_variant_of_vllm_ascend_is_biased() -> None:
    """Three drafted tokens or more; with fewer it is the token-wise test, whose distance is that of the draws alone."""
    assert ascend_bias(0, 2) < 0.02 < 0.04 < ascend_bias(0, 3)
