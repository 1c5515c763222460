"""The law of each emitted token, against enumeration of every outcome of a draft and against sampling."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from methods.distortion import POWERS, compared, keep_probability, sampled_law, tree_law
from methods.rules.base import Rule
from methods.rules.lossless import Lossless
from methods.rules.mars import Mars
from methods.rules.random import Random
from methods.rules.typical import Typical
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from results.metrics.distortion import INVERSE

VOCAB, DRAWS = 6, 1_000_000
RULES = [Lossless(), Mars(variant="sampling", theta=0.5), Mars(), Random(rate=0.3), Typical(epsilon=0.2, delta=0.8)]


def star(seed: int, sampled: bool, sampling: Sampling, rows: int = 1) -> Verification:
    """One context with three candidates (one, drawn from q, where `sampled`), the same in each row."""
    random = torch.Generator().manual_seed(seed)
    nodes = 2 if sampled else 4
    logits = (torch.randn(1, 1, VOCAB, generator=random) * 2).expand(rows, nodes, VOCAB)
    draft_logits = (torch.randn(1, 1, VOCAB, generator=random) * 2).expand(rows, nodes, VOCAB)
    q = sampling.probs(draft_logits[:, 0])
    u = torch.rand(rows, nodes, generator=random)
    if sampled:
        tokens = torch.multinomial(q, 1, generator=random)
        of_token = torch.cat([torch.ones(rows, 1), q.gather(1, tokens)], 1)
        draft = Draft.of_chain(torch.cat([torch.zeros_like(tokens), tokens], 1), sampled=True, logits=draft_logits,
                               q=of_token)
    else:
        tokens = torch.tensor([[0, 4, 1, 3]]).expand(rows, -1)
        draft = Draft.of_parents(tokens, torch.tensor([[-1, 0, 0, 0]]).expand(rows, -1), logits=draft_logits)
    return Verification(draft, logits, sampling, u)


def law_of(rule: Rule, v: Verification) -> torch.Tensor:
    """[V] of the root's token."""
    at = torch.zeros(1, dtype=torch.long)
    if v.draft.sampled:
        return sampled_law(rule, v, at, at)[0]
    kept = keep_probability(rule, v)
    earlier = torch.where(v.earlier_siblings, 1 - kept[:, None, :], 1.0).prod(-1)
    return tree_law(rule, v, at, at, kept * earlier)[0]


@pytest.mark.parametrize("sampled", [False, True], ids=["tree", "chain"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}-{rule.model_dump().get('variant', '')}")
def test_law_is_that_of_a_million_draws(rule: Rule, sampled: bool) -> None:
    """The first token behind the root, drawn a million times through `decide`, `walk` and `next_token`."""
    sampling = Sampling(temperature=0.8)
    law = law_of(rule, star(3, sampled, sampling))
    assert law.sum() == pytest.approx(1.0, abs=1e-9)
    v = star(3, sampled, sampling, DRAWS)
    path = walk(v, rule.decide(v))
    after = rule.next_token(v, path.last, torch.rand(DRAWS, generator=torch.Generator().manual_seed(8)))
    first = torch.where(path.length > 0, v.draft.tokens.gather(1, path.last[:, None])[:, 0], after)
    counts = torch.bincount(first, minlength=VOCAB).double() / DRAWS
    error = (law * (1 - law) / DRAWS).sqrt()
    assert ((counts - law).abs() <= 5 * error + 1e-6).all()


@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.0, 1.3])
@pytest.mark.parametrize("sampled", [False, True], ids=["tree", "chain"])
@pytest.mark.parametrize("seed", range(4))
def test_lossless_has_the_law_of_the_target(temperature: float, sampled: bool, seed: int) -> None:
    sampling = Sampling(temperature=temperature)
    v = star(seed, sampled, sampling)
    values = compared(v.logits[:, 0], law_of(Lossless(), v)[None], sampling)[0]
    assert values[0] < 1e-9 and values[1] < 1e-6 and values[2] < 1e-9 and values[3] == 0


def test_numbers_are_those_of_the_definitions() -> None:
    """KL, TV, JS, mass outside, entropy, mean logit and logsumexp, each by its sum over the vocabulary."""
    z, law = [1.0, 0.5, -0.3, -2.0], [0.1, 0.6, 0.3, 0.0]
    for sampling, support in ((Sampling(temperature=0.7), 4), (Sampling(temperature=0.7, top_k=2), 2)):
        mass = [math.exp(x / 0.7) if i < support else 0.0 for i, x in enumerate(z)]
        p = [x / sum(mass) for x in mass]
        kl = sum(r * math.log(r / x) for r, x in zip(law, p, strict=True) if r) if support == 4 else math.inf
        middle = [(r + x) / 2 for r, x in zip(law, p, strict=True)]
        js = sum(r * math.log(r / m) / 2 for one in (law, p) for r, m in zip(one, middle, strict=True) if r)
        tv = sum(abs(r - x) for r, x in zip(law, p, strict=True)) / 2
        outside = sum(r for r, x in zip(law, p, strict=True) if x == 0)
        entropy, logit = -sum(r * math.log(r) for r in law if r), sum(r * x for r, x in zip(law, z, strict=True))
        given = torch.tensor([z]), torch.tensor([law], dtype=torch.float64)
        found = compared(*given, sampling)[0].tolist()
        assert found[:6] == pytest.approx([kl, tv, js, outside, entropy, logit], rel=1e-6)
        assert found[6:] == pytest.approx([math.log(sum(math.exp(x * n / 4) for x in z)) for n in POWERS], rel=1e-7)
    greedy = compared(*given, replace(sampling, temperature=0.0, top_k=0))[0].tolist()
    js = (0.1 * math.log(0.1 / 0.55) + 0.9 * math.log(2) + math.log(1 / 0.55)) / 2
    assert greedy[:4] == pytest.approx([1.0 - logit, 0.9, js, 0.9], rel=1e-6)


def test_store_and_loop_know_the_same_temperatures() -> None:
    assert [n / 4 for n in POWERS] == INVERSE.tolist()
