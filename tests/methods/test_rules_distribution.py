"""Lossless rules emit the target's distribution, and the tests that say so can tell a biased rule from an exact one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from scipy import stats
from torch import Tensor

from methods import registry
from methods.rules.base import Rule
from methods.rules.lossless import Lossless
from methods.rules.mars import Mars
from methods.rules.random import Random
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling, draw
from methods.trees.draft import Draft
from tests.helpers.rule_cases import first_token

VOCAB = 5
SHAPES = {"chain": [-1, 0, 1], "siblings": [-1, 0, 0, 0], "tree": [-1, 0, 0, 1, 1, 2, 0, 3]}
SETTINGS = [Sampling(1.0), Sampling(0.7, top_k=4), Sampling(1.3, top_p=0.85), Sampling(1.0, min_p=0.1)]


@dataclass
class Bigrams:
    """Two models that only look at the last token: raw logits [VOCAB, VOCAB] of target and draft."""

    target: Tensor
    draft: Tensor

    @classmethod
    def random(cls, seed: int, agreement: float = 1.0) -> Bigrams:
        g = torch.Generator().manual_seed(seed)
        target = 1.5 * torch.randn(VOCAB, VOCAB, generator=g) + 3.0
        return cls(target, agreement * target + torch.randn(VOCAB, VOCAB, generator=g))

    def propose(self, root: Tensor, parents: list[int], sampling: Sampling, sampled: bool, g: torch.Generator) -> Draft:
        """A draft of the given shape after each root [B]: children drawn from q, or q's best ones in order."""
        q = sampling.probs(self.draft) if sampled else self.draft.softmax(-1)
        tokens, own_q = root[:, None], torch.ones(len(root), 1)
        for i, parent in enumerate(parents[1:], start=1):
            context = tokens[:, parent]
            if sampled:
                token = draw(q[context], torch.rand(len(root), generator=g))
            else:
                token = self.draft.argsort(-1, descending=True)[context, parents[:i].count(parent)]
            own_q = torch.cat([own_q, q[context, token][:, None]], 1)
            tokens = torch.cat([tokens, token[:, None]], 1)
        return self.as_draft(tokens, parents, sampled, own_q)

    def as_draft(self, tokens: Tensor, parents: list[int], sampled: bool, own_q: Tensor) -> Draft:
        if parents == list(range(-1, len(parents) - 1)):
            return Draft.of_chain(tokens, sampled=sampled, logits=self.draft[tokens], q=own_q)
        return Draft.of_parents(tokens, torch.tensor(parents).expand_as(tokens), sampled=sampled,
                                logits=self.draft[tokens], q=own_q)

    def two_tokens(self, rule: Rule, shape: str, sampling: Sampling, sampled: bool, draws: int, seed: int) -> Tensor:
        """Counts [VOCAB, VOCAB] of the first two tokens after token 0, over independent decoding runs."""
        g = torch.Generator().manual_seed(seed)
        lengths = torch.ones(draws, dtype=torch.long)
        out = torch.zeros(draws, 2 + 2 * len(SHAPES[shape]), dtype=torch.long)
        for _ in range(2):  # every cycle emits at least one token
            root = out.gather(1, lengths[:, None] - 1)[:, 0]
            draft = self.propose(root, SHAPES[shape], sampling, sampled, g)
            v = Verification(draft, self.target[draft.tokens], sampling, torch.rand(draft.tokens.shape, generator=g))
            kept = walk(v, rule.decide(v))
            token = rule.next_token(v, kept.last, torch.rand(draws, generator=g))
            place = lengths[:, None] - 1 + draft.depth.expand(draft.tokens.shape)
            row, node = kept.kept.nonzero(as_tuple=True)
            out[row, place[row, node]] = draft.tokens[row, node]
            lengths = lengths + kept.length + 1
            out.scatter_(1, lengths[:, None] - 1, token[:, None])
        return torch.bincount(out[:, 1] * VOCAB + out[:, 2], minlength=VOCAB**2).view(VOCAB, VOCAB)


def p_value(counts: Tensor, expected: Tensor) -> float:
    """Chi-square test of counts against probabilities; a token of probability zero must never appear."""
    counts, expected = counts.flatten().double(), expected.flatten().double()
    assert counts[expected == 0].sum() == 0
    possible = expected > 0
    expected = expected[possible] / expected[possible].sum() * counts.sum()
    return float(stats.chisquare(counts[possible].numpy(), expected.numpy()).pvalue)


def joint(models: Bigrams, sampling: Sampling) -> Tensor:
    """[VOCAB, VOCAB] probability of the first two tokens after token 0 under the target alone."""
    p = sampling.probs(models.target)
    return p[0][:, None] * p


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sampled", [True, False], ids=["sampled", "deterministic"])
def test_two_tokens_are_the_targets(shape: str, sampled: bool, sampling: Sampling) -> None:
    models = Bigrams.random(seed=1)
    counts = models.two_tokens(Lossless(), shape, sampling, sampled, draws=20_000, seed=3)
    assert p_value(counts, joint(models, sampling)) > 1e-3


STRICT = {"cactus": {"delta": 0.0}, "lossy": {"alpha": 0.0}, "cascade_opt": {"alpha": -1.1},
          "r_fuzzy": {"threshold": 0.0}, "ensemble": {"w": 1.0}, "threshold": {}, "ears": {"tolerance": 0.0},
          "entropy_verify": {"threshold": 1.0, "alpha": 0.0}, "contrastive": {"beta": 0.0}}


@pytest.mark.parametrize("name", STRICT)
def test_two_tokens_of_a_strict_setting_are_the_targets(name: str) -> None:
    models, rule = Bigrams.random(seed=1), registry.rule(name)(**STRICT[name])
    for shape in ["chain"] if rule.chain_only else SHAPES:
        counts = models.two_tokens(rule, shape, SETTINGS[1], sampled=True, draws=20_000, seed=3)
        assert p_value(counts, joint(models, SETTINGS[1])) > 1e-3


BIASED = {"q_mode draft": Lossless(q_mode="draft"), "mars": Mars(variant="sampling", theta=0.5),
          "mars released": Mars(variant="released", q_mode="draft"), "random": Random(rate=0.7)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", BIASED)
def test_the_same_test_sees_a_bias(name: str, shape: str) -> None:
    models = Bigrams.random(seed=1)
    counts = models.two_tokens(BIASED[name], shape, Sampling(1.0), sampled=False, draws=20_000, seed=3)
    assert p_value(counts, joint(models, Sampling(1.0))) < 1e-9


BIASED_CHAINS = {"cactus": {}, "lossy": {}, "cascade_opt": {"alpha": 0.5}, "cascade_tok": {"alpha": 0.0},
                 "r_fuzzy": {}, "ensemble": {}, "contrastive": {}, "threshold": {"acc": 0.8}, "ears": {},
                 "entropy_verify": {}}


@pytest.mark.parametrize("name", BIASED_CHAINS)
def test_the_same_test_sees_a_relaxed_chain(name: str) -> None:
    models, rule = Bigrams.random(seed=1), registry.rule(name)(**BIASED_CHAINS[name])
    counts = models.two_tokens(rule, "chain", Sampling(1.0), sampled=True, draws=20_000, seed=3)
    assert p_value(counts, joint(models, Sampling(1.0))) < 1e-9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("shape", ["chain", "siblings"])
def test_first_token_exactly(shape: str, sampling: Sampling, seed: int) -> None:
    """No draws at all: every draft that can be made, weighted by its probability, all acceptance tests integrated."""
    models, parents = Bigrams.random(seed, agreement=0.5), SHAPES[shape]
    q = sampling.probs(models.draft)
    drafts = torch.tensor([[0, *t] for t in itertools.product(range(VOCAB), repeat=len(parents) - 1)])
    own_q = q[drafts[:, parents], drafts]
    own_q[:, 0] = 1.0
    drafts, own_q = drafts[own_q.prod(1) > 0], own_q[own_q.prod(1) > 0]
    draft = models.as_draft(drafts, parents, True, own_q)
    v = Verification(draft, models.target[drafts], sampling, torch.zeros(drafts.shape))
    marginal = (first_token(Lossless(), v) * own_q.double().prod(1, keepdim=True)).sum(0)
    torch.testing.assert_close(marginal, sampling.probs(models.target[0]).double(), atol=1e-6, rtol=0.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_deterministic_first_token_exactly(shape: str) -> None:
    """Exact for every single draft, not only on average; with q_mode draft it is off by far more than rounding."""
    models = Bigrams.random(seed=2)
    g = torch.Generator().manual_seed(0)
    draft = models.propose(torch.arange(VOCAB), SHAPES[shape], Sampling(1.0), False, g)
    v = Verification(draft, models.target[draft.tokens], Sampling(1.0), torch.zeros(draft.tokens.shape))
    p = v.p[:, 0].double()
    torch.testing.assert_close(first_token(Lossless(), v), p, atol=1e-6, rtol=0.0)
    assert (first_token(Lossless(q_mode="draft"), v) - p).abs().sum(-1).max() / 2 > 0.05


def test_repeated_sibling_counts_once() -> None:
    """A rejected deterministic token has no mass left: its repetition is never accepted, nor subtracted again."""
    models = Bigrams.random(seed=4)
    tokens = torch.tensor([[0, 2, 2, 1]])
    draft = models.as_draft(tokens, SHAPES["siblings"], False, torch.ones(1, 4))
    v = Verification(draft, models.target[tokens], Sampling(1.0), torch.zeros(1, 4))
    torch.testing.assert_close(first_token(Lossless(), v), v.p[:, 0].double(), atol=1e-6, rtol=0.0)
