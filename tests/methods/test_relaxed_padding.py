"""Rules with hidden states, constants and groups never look at padding nodes, whatever stands in them."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from methods.rules._arc_constants import Bucket, Constants
from methods.rules._classifier import Classifier, Linear
from methods.rules._token_groups import Groups
from methods.rules.arc import Arc
from methods.rules.autojudge import Autojudge
from methods.rules.coarse_grained import CoarseGrained
from methods.rules.dropmatch import Dropmatch
from methods.rules.judge import Judge
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.rule_cases import random_case

V, H = 12, 12
G = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(V, H, generator=G)
TARGET = SimpleNamespace(head=lambda h: h @ WEIGHT.T)
EMBEDDING = torch.randn(V, 6, generator=G)
CONSTANTS = Constants(target="t", fingerprint="f", inv_std=[1.0] * 6, edges=[0.4], buckets=[
    Bucket(c=0.02, alpha_kappa=0.1, tau=0.5, n=1), Bucket(c=0.05, alpha_kappa=0.3, tau=0.9, n=1)])
LINEAR = Linear.of(Classifier(kind="judge", target="t", fingerprint="f", features="target", mean=[0.0] * H,
                              scale=[1.0] * H, coef=torch.randn(H, generator=G).tolist(), intercept=0.0), "cpu")


def coarse(token: str) -> CoarseGrained:
    rule = CoarseGrained(token=token)
    rule._groups = Groups.from_lists([[0, 1, 2], [2, 3, 4], [5, 6], [7, 8, 9, 0]], V)
    return rule


RULES = [*(Dropmatch(variant=v).bind(TARGET, None) for v in ("naive", "js", "majority")),
         *(Arc(variant=v, q_mode=q).with_constants(CONSTANTS, EMBEDDING)
           for v, q in (("paper", "exact"), ("released", "draft"))),
         Autojudge(threshold=0.4).with_classifier(LINEAR), Judge().with_classifier(LINEAR),
         coarse("keep"), coarse("redraw")]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_padding_is_never_kept_nor_seen(rule) -> None:
    for seed, sampled, tree in itertools.product(range(3), (False, True), (False, True)):
        v = random_case(seed, Sampling(1.0), sampled=sampled, tree=tree, vocab=V)
        hidden, draft = torch.randn(*v.u.shape, H, generator=torch.Generator().manual_seed(seed)), v.draft
        valid = draft.valid
        clean = Verification(draft, v.logits, v.sampling, v.u, hidden)
        junk = torch.where(valid, draft.tokens, v.at_parent(v.argmax))
        q = torch.where(valid, draft.q, torch.nan)
        if tree:
            parents = torch.where(valid, draft.parents, torch.arange(draft.nodes) - 1)
            other = Draft.of_parents(junk, parents, valid=valid, sampled=sampled, logits=draft.logits, q=q)
        else:
            other = Draft.of_chain(junk, valid=valid, sampled=sampled, logits=draft.logits, q=q)
        noisy = Verification(other, torch.where(valid[..., None], v.logits, torch.nan), v.sampling, v.u,
                             torch.where(valid[..., None], hidden, torch.nan))
        expected, found = walk(clean, rule.decide(clean)), walk(noisy, rule.decide(noisy))
        assert torch.equal(expected.kept, found.kept)
        assert torch.equal(expected.relaxed, found.relaxed) and torch.equal(expected.greedier, found.greedier)
        assert not (found.kept & ~valid).any()
        torch.testing.assert_close(rule.emit(clean, expected.last), rule.emit(noisy, found.last))
