"""Coarse-grained verification: exact as a distribution, lossless with groups of one."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from methods.rules.coarse_grained import CoarseGrained
from methods.rules.lossless import Lossless
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from tests.helpers.rule_cases import random_case
from tests.helpers.rule_pairs import GROUPS, coarse
from tests.methods.test_rules_distribution import SHAPES, VOCAB, Bigrams, joint, p_value


@pytest.mark.parametrize("token", ["redraw", "keep"])
@pytest.mark.parametrize("seed", range(3))
def test_singletons_decide_like_lossless(seed: int, token: str) -> None:
    for sampled, tree in itertools.product((False, True), (False, True)):
        v = random_case(seed, Sampling(1.0), sampled=sampled, tree=tree)
        one, other = walk(v, coarse(GROUPS["singletons"], token).decide(v)), walk(v, Lossless().decide(v))
        assert torch.equal(one.kept, other.kept) and not one.relaxed.any()


OVERLAPPING = [[0, 1], [1, 2, 3], [3, 4], [4]]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sampled", [True, False], ids=["sampled", "deterministic"])
def test_redraw_emits_the_target_whatever_the_groups(shape: str, sampled: bool) -> None:
    models = Bigrams.random(seed=1)
    for groups in ([[v] for v in range(VOCAB)], OVERLAPPING):
        counts = models.two_tokens(coarse(groups, "redraw", VOCAB), shape, Sampling(1.0), sampled, 20_000, seed=3)
        assert p_value(counts, joint(models, Sampling(1.0))) > 1e-3


@pytest.mark.parametrize("shape", SHAPES)
def test_singletons_that_keep_are_lossless_and_overlapping_groups_are_not(shape: str) -> None:
    models, expected = Bigrams.random(seed=1), joint(Bigrams.random(seed=1), Sampling(1.0))
    for sampled in (True, False):
        alone = coarse([[v] for v in range(VOCAB)], "keep", VOCAB)
        assert p_value(models.two_tokens(alone, shape, Sampling(1.0), sampled, 20_000, seed=3), expected) > 1e-3
        shared = coarse(OVERLAPPING, "keep", VOCAB)
        assert p_value(models.two_tokens(shared, shape, Sampling(1.0), sampled, 20_000, seed=3), expected) < 1e-9


@pytest.mark.parametrize("sampled", [True, False], ids=["sampled", "deterministic"])
@pytest.mark.parametrize("shape", ["chain", "siblings"])
def test_kept_groups_have_the_targets_group_distribution(shape: str, sampled: bool) -> None:
    """With disjoint groups, the group of the first token is distributed as the target has it, relaxed or not."""
    groups, models, n = [[0, 2], [1, 4], [3]], Bigrams.random(seed=2), 40_000
    rule, g = coarse(groups, "keep", VOCAB), torch.Generator().manual_seed(5)
    sampling = Sampling(1.0)
    draft = models.propose(torch.zeros(n, dtype=torch.long), SHAPES[shape], sampling, sampled, g)
    v = Verification(draft, models.target[draft.tokens], sampling, torch.rand(draft.tokens.shape, generator=g))
    kept = walk(v, rule.decide(v))
    drawn = rule.next_token(v, kept.last, torch.rand(n, generator=g))
    first = torch.where(kept.length > 0, (draft.tokens * (kept.kept & (draft.depth == 1))).sum(1), drawn)
    of = torch.tensor([0, 1, 0, 2, 1])
    expected = torch.zeros(3).index_add_(0, of, sampling.probs(models.target[0]))
    assert p_value(torch.bincount(of[first], minlength=3), expected) > 1e-3
    assert (kept.relaxed_count + kept.greedier_count).sum() > n / 50


def test_groups_around_embeddings() -> None:
    embedding = torch.tensor([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0], [0.1, 3.0], [-1.0, 0.0]])
    target = SimpleNamespace(embedding=embedding, model=torch.nn.Identity(), vocab_size=5, device="cpu")
    groups = CoarseGrained(similarity=0.9).bind(target, None)._groups
    assert CoarseGrained(similarity=0.9, token="keep").bind(target, None)._groups is groups, "searched for once"
    own = [{int(g) for g, used in zip(*row, strict=True) if used}
           for row in zip(groups.of, groups.member, strict=True)]
    assert own == [{0, 1}, {0, 1}, {2, 3}, {2, 3}, {4}]
    alone = CoarseGrained(similarity=1.1).bind(target, None)._groups
    assert alone.member.sum(1).tolist() == [1] * 5
    embedding[4] = embedding[0]
    assert CoarseGrained(similarity=0.9).bind(target, None)._groups.member[4].sum() == 3, "other weights, other groups"
    p = torch.rand(3, 5).softmax(-1)
    torch.testing.assert_close(groups.mass(p).sum(-1), torch.ones(3))
    torch.testing.assert_close(groups.spread(groups.mass(p), p), p)


def test_groups_from_a_file(tmp_path: Path) -> None:
    file, target = tmp_path / "groups.json", SimpleNamespace(vocab_size=4, device="cpu")
    file.write_text(json.dumps({"groups": [[0, 2], [2, 3]]}))
    groups = CoarseGrained(groups=file).bind(target, None)._groups
    assert groups.count == 3 and groups.member.sum(1).tolist() == [1, 1, 2, 1]
    for content, message in [('{"groups": [[0, 9]]}', "token 9; ids go from 0 to 3"), ("[]", "not a file of token"),
                             ('{"groups": [[1, 1]]}', "token 1 twice"), ("{", "not a file of token groups")]:
        file.write_text(content)
        with pytest.raises(ValueError, match=message) as refusal:
            CoarseGrained(groups=file).bind(target, None)
        assert "\n" not in str(refusal.value)
