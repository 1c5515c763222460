"""Trees of drawn siblings: what is drawn, and what the drafts carry."""

from __future__ import annotations

import pytest
import torch

from methods import registry
from methods.drafters.base import DraftSettings
from methods.sampling import Sampling
from methods.trees.sampled import SampledTree
from methods.trees.static import regular
from tests.helpers.tiny_models import language_model

WARM, NARROW = Sampling(1.0), Sampling(1.0, top_k=2)


def tree(sampling: Sampling, replacement: bool, sampled: bool = True) -> SampledTree:
    return SampledTree(regular((3,), 1), sampling, sampled, replacement)


def test_regular_shapes() -> None:
    shape = regular((3, 2), 3)
    assert shape.nodes == 1 + 3 + 6 + 6 and shape.max_depth == 3 and max(shape.widths) == 3
    assert shape.parents[4:10] == (1, 1, 2, 2, 3, 3) and regular((), 4).parents == (-1, 0, 1, 2, 3)
    assert tree(WARM, True).sizes == (1, 3)


@pytest.mark.parametrize("replacement", [True, False])
def test_law_of_siblings(replacement: bool) -> None:
    """First and second sibling have the joint law of independent draws, or of draws without replacement."""
    logits, draws = torch.tensor([0.3, 1.0, -0.5, 0.2]), 40_000
    u = torch.rand(draws, 1, 3, generator=torch.Generator().manual_seed(0))
    drawn = tree(WARM, replacement).siblings(logits.expand(draws, 1, 4), u)
    q = logits.double().softmax(-1)
    joint = torch.zeros(4, 4, dtype=torch.double)
    joint.index_put_((drawn.tokens[:, 0, 0], drawn.tokens[:, 0, 1]), torch.ones(draws, dtype=torch.double), True)
    second = q.expand(4, 4) if replacement else (q.expand(4, 4) * (1 - torch.eye(4))) / (1 - q)[:, None]
    assert (joint / draws - q[:, None] * second).abs().max() < 0.01
    torch.testing.assert_close(drawn.q[0, 0], q[drawn.tokens[0, 0]].float())
    assert drawn.real.all()


def test_siblings_end_with_the_distribution() -> None:
    u = torch.tensor([[[0.1, 0.999999, 0.5]]])
    drawn = tree(NARROW, False).siblings(torch.tensor([[[0.0, 3.0, 2.0, -1.0]]]), u)
    assert drawn.real.tolist() == [[[True, True, False]]] and drawn.tokens[0, 0, :2].tolist() == [1, 2]
    likeliest = tree(WARM, False, sampled=False).siblings(torch.tensor([[[0.0, 3.0, 2.0, -1.0]]]), u)
    assert likeliest.tokens.tolist() == [[[1, 2, 0]]]


def test_a_models_tree_carries_the_distributions_it_was_drawn_from() -> None:
    """Also in a ragged batch, and after tokens were committed."""
    target, model = language_model(layers=2), language_model(layers=1, seed=3)
    drafter = registry.drafter("model")(branching=[2, 2])
    rows = [[1, 2, 3, 4], [3, 1]]
    proposer = drafter.start(target, model, DraftSettings(3, WARM, True), [row[:-1] for row in rows], 40)
    g = torch.Generator().manual_seed(0)
    for _ in range(2):
        draft = proposer.propose(rows, torch.rand(2, drafter.num_uniforms(3), generator=g))
        assert draft.nodes == drafter.nodes(3) == 11 and draft.sizes == (1, 2, 4, 4) and not draft.replacement
        for row in range(2):
            for node in range(7):
                path = draft.tokens[row][draft.ancestors[0, node]].tolist()
                ids = torch.tensor([rows[row][:-1] + path])
                whole = model.forward(ids, model.new_cache(1, 40)).logits[0, -1]
                torch.testing.assert_close(draft.logits[row, node], whole, atol=1e-4, rtol=1e-4)
        own = WARM.probs(draft.logits)[:, list(regular((2, 2), 3).parents)].gather(2, draft.tokens[..., None])[..., 0]
        torch.testing.assert_close(draft.q[:, 1:], own[:, 1:])
        rows[0] += [5, 6, 7]
        rows[1] += [8]
