"""DropMatch: at its ends, and its masks as random numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from methods.rules.dropmatch import Dropmatch, words
from methods.rules.greedy import Greedy
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers import rule_reference
from tests.helpers.rule_cases import random_case
from tests.helpers.rule_pairs import DROPMATCH_TARGET, dropmatch_local, states_behind_logits
from tests.helpers.tiny_models import ARCHITECTURES, language_model


@pytest.mark.parametrize("tree", [False, True])
def test_a_draft_vocabulary_of_its_own_leaves_divergences_finite(tree: bool) -> None:
    """Tokens that a head does not have are at minus infinity: they add the centroid's side of JS alone."""
    options = {"variant": "js", "heads": 5, "p_drop": 0.3}
    rule, by_divergence = Dropmatch(**options).bind(DROPMATCH_TARGET, None), 0
    for seed in range(4):
        v = states_behind_logits(random_case(seed, Sampling(0.0), sampled=False, tree=tree))
        v.draft.logits[..., 9:] = -torch.inf
        voted = rule.model_copy(update={"variant": "majority"})
        kept, majority = (walk(v, one.decide(v)).kept for one in (rule, voted))
        tested = kept & (v.draft.depth > 0)
        assert rule.statistics(v)["js_centroid"][tested].isfinite().all()
        for row in range(len(v.u)):
            reference = rule_reference.contexts(v, row)
            local = dropmatch_local(v, row, reference, options)
            assert kept[row].nonzero().flatten().tolist() == rule_reference.walk(reference, local)[0]
        by_divergence += int((kept & ~majority).sum())
    assert by_divergence > 0, "some must be kept by eq. 6 alone"


@pytest.mark.parametrize("variant", ["naive", "majority", "js"])
@pytest.mark.parametrize("seed", range(3))
def test_without_dropout_it_is_greedy_matching(variant: str, seed: int) -> None:
    for tree in (False, True):
        v = states_behind_logits(random_case(seed, Sampling(0.0), sampled=False, tree=tree))
        rule = Dropmatch(variant=variant, p_drop=0.0).bind(DROPMATCH_TARGET, None)
        found, expected = walk(v, rule.decide(v)), walk(v, Greedy().decide(v))
        assert torch.equal(found.kept, expected.kept) and not found.relaxed.any()
        assert torch.equal(rule.next_token(v, found.last, v.u[:, 0]), v.at(v.argmax, found.last))


def test_masks_drop_evenly_and_do_not_repeat() -> None:
    u = torch.rand(40, 5, generator=torch.Generator().manual_seed(1))
    found = words(u, torch.arange(500)).double() / 2**32
    assert stats.kstest(found.flatten()[::7].numpy(), "uniform").pvalue > 1e-3
    dropped = (found < 0.3).double()
    assert stats.chisquare(torch.stack([dropped.sum(), (1 - dropped).sum()]).numpy(),
                           [0.3 * found.numel(), 0.7 * found.numel()]).pvalue > 1e-3
    for axis in (0, 2):  # neighbouring rows, neighbouring units
        one, other = dropped.narrow(axis, 0, dropped.shape[axis] - 1), dropped.narrow(axis, 1, dropped.shape[axis] - 1)
        assert abs(np.corrcoef(one.flatten(), other.flatten())[0, 1]) < 4 / one.numel() ** 0.5


def test_masks_do_not_depend_on_the_batch() -> None:
    v = states_behind_logits(random_case(4, Sampling(1.0), sampled=False, tree=False))
    rule = Dropmatch().bind(DROPMATCH_TARGET, None)
    one = Draft.of_chain(v.draft.tokens[3:4])
    alone = Verification(one, v.logits[3:4], v.sampling, v.u[3:4], v.hidden[3:4])
    torch.testing.assert_close(rule.head_logits(v)[3:4], rule.head_logits(alone))


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_targets_head_gives_its_own_logits(kind: str) -> None:
    """Caps and scales included, for the last hidden state that rules are given."""
    model = language_model(kind)
    out = model.forward(torch.tensor([[5, 9, 3, 40]]), model.new_cache(1, 8), hidden=True)
    torch.testing.assert_close(model.head(out.hidden), out.logits)


def test_js_needs_a_draft_distribution_and_naive_does_not() -> None:
    assert Dropmatch(variant="js").needs_q(Sampling(0.0)) and not Dropmatch(variant="naive").needs_q(Sampling(1.0))
