"""A dropout head in the target's place."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from methods.rules.base import DraftCapabilities
from methods.rules.dropmatch import Dropmatch
from methods.rules.dropout_head import DropoutHead
from methods.rules.greedy import Greedy
from methods.rules.walk import walk
from methods.sampling import Sampling
from tests.helpers.rule_cases import random_case
from tests.helpers.rule_pairs import DROPMATCH_TARGET, states_behind_logits

COLD = Sampling(0.0)


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("head", [1, 4])
def test_it_says_what_dropmatchs_head_says(tree: bool, head: int) -> None:
    """Kept iff the head's token, and that token follows, with and without dropout."""
    relaxed = 0
    for seed in range(4):
        v = states_behind_logits(random_case(seed, COLD, sampled=False, tree=tree))
        rule = DropoutHead(head=head, p_drop=0.4).bind(DROPMATCH_TARGET, None)
        said = Dropmatch(p_drop=0.4).bind(DROPMATCH_TARGET, None).head_logits(v)[:, :, head - 1].argmax(-1)  # [B, n]
        kept = walk(v, rule.decide(v))
        token = rule.next_token(v, kept.last, v.u[:, 0])
        for row in range(len(said)):
            path = kept.kept[row].nonzero().flatten().tolist()
            for parent, child in pairwise(path):
                assert int(v.draft.tokens[row, child]) == int(said[row, parent])
            last = path[-1]
            if last < said.shape[1]:
                assert int(token[row]) == int(said[row, last])
                children = v.children_of(torch.full((len(said),), last))[row]
                assert int(token[row]) not in v.draft.tokens[row, children].tolist(), "it would have been accepted"
        relaxed += int(kept.relaxed.sum())
        plain, greedy = DropoutHead(head=head, p_drop=0.0).bind(DROPMATCH_TARGET, None), Greedy()
        found, expected = walk(v, plain.decide(v)), walk(v, greedy.decide(v))
        assert torch.equal(found.kept, expected.kept) and not found.relaxed.any()
        assert torch.equal(plain.next_token(v, found.last, v.u[:, 0]), greedy.next_token(v, found.last, v.u[:, 0]))
    assert relaxed > 0, "the cases must hold tokens of the head that are not the target's"


def test_temperature_zero_alone() -> None:
    with pytest.raises(ValueError, match="temperature 0 only"):
        DropoutHead().check(DraftCapabilities("model", True, True), Sampling(1.0))
