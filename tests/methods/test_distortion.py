"""The law of a rule against draws and definitions."""

from __future__ import annotations

from operator import mul
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import entr, logsumexp, rel_entr, softmax

from methods import batch, registry
from methods.batch import Generation
from methods.decode import Limits
from methods.distortion import (
    POWERS,
    compared,
    first_kept,
    keep_probability,
    sampled_law,
    tree_law,
)
from methods.likelihood import generate_with_nll
from methods.rules.base import Rule
from methods.rules.lossless import Random
from methods.rules.verification import Verification
from methods.rules.walk import Decision
from methods.rules.whole import Block
from methods.sampling import Sampling
from results.metrics.distortion import INVERSE, LEVELS
from tests.helpers.rule_cases import every_token, first_token, random_case
from tests.helpers.tiny_heads import method_of, requests
from tests.helpers.tiny_models import VOCAB

RULES: list[tuple[str, dict[str, Any]]] = [
    ("lossless", {}),
    ("lossless", {"q_mode": "draft"}),
    ("mars", {}),
    ("random", {"rate": 0.3}),
    ("mars", {"variant": "sampling", "theta": 0.5}),
    ("typical", {}),
    ("fsd", {"threshold": 0.3}),
    ("threshold", {"single": 0.3}),
    *(("tilted", {"lam": lam}) for lam in (0.1, 1.0)),
]
DRAWN = [*RULES, ("cactus", {}), ("lossy", {}), ("cascade_tok", {}), ("ensemble", {"w": 0.5})]


def root_law(rule: Rule, v: Verification) -> torch.Tensor:
    """[B, V] the law of the token behind each root, as it is recorded."""
    rows = torch.arange(len(v.u))
    if v.draft.sampled:
        return sampled_law(rule, v, rows, torch.zeros_like(rows))
    return tree_law(rule, v, rows, torch.zeros_like(rows), first_kept(v, keep_probability(rule, v)))


@pytest.mark.parametrize(("name", "options"), DRAWN, ids=str)
def test_the_law_is_that_of_all_outcomes(name: str, options: dict[str, Any]) -> None:
    """Of the first token behind the root, every random number and every drawn token integrated
    out."""
    rule, sampling = registry.rule(name)(**options), Sampling(0.8)
    drawn = random_case(6, sampling, sampled=True, tree=False)
    one = every_token(rule, drawn.logits[:, 0], drawn.draft_logits[:, 0], sampling)
    torch.testing.assert_close(root_law(rule, drawn), one, atol=1e-5, rtol=0.0)
    tree = random_case(5, sampling, sampled=False, tree=True)
    if (name, options) in RULES:
        torch.testing.assert_close(
            root_law(rule, tree), first_token(rule, tree), atol=1e-5, rtol=0.0
        )


def test_numbers_are_those_of_the_definitions() -> None:
    """KL, TV, JS, mass outside, entropy, mean logit, TV at temperature 1 and logsumexp and
    the target's entropy, each by its sum over the vocabulary."""
    z, law = np.array([1.0, 0.5, -0.3, -2.0]), np.array([0.1, 0.6, 0.3, 0.0])
    tensors = torch.tensor(z[None]).float(), torch.tensor(law[None])
    logit = law @ z

    def numbers(p: np.ndarray) -> list[float]:
        middle = (law + p) / 2
        js = (rel_entr(law, middle) + rel_entr(p, middle)).sum() / 2
        outside = law[p == 0].sum()
        return [rel_entr(law, p).sum(), abs(law - p).sum() / 2, js, outside, entr(law).sum(), logit]

    for sampling, p in (
        (Sampling(temperature=0.7), softmax(z / 0.7)),
        (Sampling(temperature=0.7, top_k=2), np.append(softmax(z[:2] / 0.7), [0.0, 0.0])),
    ):
        found = compared(*tensors, sampling)[0].tolist()
        assert found[:6] == pytest.approx(numbers(p), rel=1e-6)
        assert found[6] == pytest.approx(abs(law - softmax(z)).sum() / 2, rel=1e-6)
        assert found[7:-1] == pytest.approx([logsumexp(z * n / 4) for n in POWERS], rel=1e-6)
        assert found[-1] == pytest.approx(entr(softmax(z)).sum(), rel=1e-6)
    greedy = compared(*tensors, Sampling(0.0))[0].tolist()
    assert greedy[:4] == pytest.approx([1.0 - logit, *numbers(np.eye(4)[0])[1:4]], rel=1e-6)


def test_store_and_loop_know_the_same_temperatures() -> None:
    assert [n / 4 for n in POWERS] == INVERSE.tolist()
    assert LEVELS.tolist() == list(batch.LEVELS)


def decoded(
    rule: str, drafter: str, sampling: Sampling, rows: int = 6, most: int = 40, **options: Any
) -> list[Generation]:
    """Answers of an untrained target, with their divergences; the draft model is a noisy copy of
    it."""
    method, asked = method_of(drafter, registry.rule(rule)(**options), sampling), requests(24)
    limits, answers = Limits(most, frozenset(range(0, VOCAB, 16)), laws=True, shrink=True), []
    for start in range(0, len(asked), rows):
        answers += generate_with_nll(method, asked[start : start + rows], limits)
    return answers


@pytest.mark.parametrize(
    ("rule", "drafter", "options"),
    [
        ("mars", "model", {"variant": "sampling", "theta": 0.5}),
        ("random", "eagle3", {"rate": 0.5}),
        ("cactus", "model", {}),
        ("tilted", "model", {"lam": 0.3}),
    ],
)
def test_emitted_tokens_are_as_likely_as_the_law_says(
    rule: str, drafter: str, options: dict[str, Any]
) -> None:
    """The mean of −log p(token) minus its expectation under R is 0 within 4 standard errors;
    batches change nothing."""
    found = decoded(rule, drafter, Sampling(1.0), **options)
    at_one = POWERS.index(4)
    excess = torch.tensor(
        [one.nll - (one.divergence.log_mass[at_one] - one.divergence.logit) for one in found]
    )
    assert abs(excess.mean()) < 4 * excess.std() / len(excess) ** 0.5
    assert sum(one.divergence.nats for one in found) > 0.01
    alone = decoded(rule, drafter, Sampling(1.0), rows=1, **options)
    for one, other in zip(found, alone, strict=True):
        assert one.divergence.nats == pytest.approx(other.divergence.nats, abs=1e-4)


def test_nats_by_place_are_those_of_shorter_answers() -> None:
    """The first 1, 4 and 16 tokens of a long answer are a shorter answer."""
    long = decoded("mars", "model", Sampling(1.0), theta=0.5)
    for place, most in enumerate(batch.PLACES):
        short = decoded("mars", "model", Sampling(1.0), most=most, theta=0.5)
        for whole, part in zip(long, short, strict=True):
            nats = sum(whole.divergence.nats_at[: place + 1])
            assert nats == pytest.approx(part.divergence.nats, abs=1e-4)
    for whole in long:
        law = whole.divergence
        assert sum(law.nats_at) == pytest.approx(law.nats)
        assert sum(law.nats_counts) == law.tokens
        levels = [0.0, *batch.LEVELS]
        least = sum(map(mul, levels, law.nats_counts))
        assert least <= law.nats and law.nats_largest <= law.nats + 1e-9
        filled = max(level for level, count in enumerate(law.nats_counts) if count)
        assert law.nats_largest >= levels[filled]
        assert sum(law.nats_by_entropy) == pytest.approx(law.nats)
        assert sum(law.tokens_by_entropy) == law.tokens


def test_a_rule_with_randomness_of_its_own_is_averaged_and_one_that_hides_it_has_no_value() -> None:
    class Hidden(Random):
        """Reads another node's number."""

        def decide(self, v: Verification) -> Decision:
            return Decision(v.u.roll(1, 1) < self.rate)

    class Declared(Hidden):
        def has_own_randomness(self) -> bool:
            return True

    for rule, drafter, basis in (
        (Random(rate=0.5), "eagle3", "law"),
        (Hidden(rate=0.5), "eagle3", None),
        (Declared(rate=0.5), "eagle3", "draws"),
        (Block(), "model", "theorem"),
    ):
        method = method_of(drafter, rule)
        answers = generate_with_nll(method, requests(6), Limits(24, frozenset(), laws=True))
        laws = [generation.divergence for generation in answers]
        assert [law and law.basis for law in laws] == [basis] * 6
