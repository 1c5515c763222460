"""The statistics of an audit against float64 sums over the whole vocabulary, and on texts whose law
is known."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, logsumexp
from scipy.stats import chi2

from methods.audit import COLDNESS, NAMES, row_of
from methods.sampling import Sampling
from results.metrics import audit
from results.metrics.audit import Tokens, audited
from tests.helpers.redrawn import FAMILIES, divergence, lossless, of_divergence, redrawn

VOCAB, PROMPTS, LENGTH = 40, 30, 12


def synthetic(seed: int, temperature: float = 1.0) -> tuple[Tokens, np.ndarray, np.ndarray]:
    """Tokens drawn from their own contexts, without a model; the logits of target and draft. All
    tokens are columns of their own."""
    rng = np.random.default_rng(seed)
    n = PROMPTS * LENGTH
    z = rng.normal(0, 1, (n, VOCAB)) * rng.uniform(0.5, 4, (n, 1))
    q = z + rng.normal(0, 1, (n, VOCAB))
    p = np.exp(log_softmax(z / temperature, axis=-1))
    emitted = np.array([rng.choice(VOCAB, p=row) for row in p])
    position = np.tile(np.arange(LENGTH), PROMPTS)
    drawn = map(torch.tensor, (z, emitted, position))
    arrays = row_of(*drawn, Sampling(temperature), (1,), torch.tensor(q))
    prompt = np.repeat(np.arange(PROMPTS), LENGTH)
    named = dict(zip(NAMES[2:], (array.numpy() for array in arrays), strict=True))
    return Tokens(prompt=prompt, text=prompt, position=position, **named), z, emitted


@cache
def contexts() -> Tokens:
    return synthetic(0)[0]


def test_z_and_score_are_sums_over_the_vocabulary() -> None:
    tokens, z, emitted = synthetic(1, temperature=0.8)
    log_p = log_softmax(z / 0.8, axis=-1)
    p, at = np.exp(log_p), np.arange(len(z))
    entropy = -(p * log_p).sum(-1)
    variance = (p * log_p**2).sum(-1) - entropy**2
    expected = (-log_p[at, emitted] - entropy).sum() / np.sqrt(variance.sum())
    assert audit.z_of(tokens) == pytest.approx(expected, abs=1e-9)
    assert tokens.log_mass.shape == (len(z), VOCAB + 6)
    # two features alone, for which the quadratic form is written out
    first = (log_p == log_p.max(-1, keepdims=True)).astype(float)
    some = replace(tokens, features=tokens.features[..., :2])
    pair = np.stack([log_p / 5, first], -1)
    mean = (p[..., None] * pair).sum(1)
    r = (pair[at, emitted] - mean).sum(0)
    covariance = np.einsum("nv,nvf,nvg->fg", p, pair, pair) - mean.T @ mean
    square = r @ np.linalg.solve(covariance, r)
    assert audit.score_p(some) == pytest.approx(chi2.sf(square, 2), rel=1e-3)


def test_the_witness_is_the_maximum() -> None:
    tokens = contexts()
    log_p = tokens.log_mass
    features = tokens.features.astype(np.float64)
    emitted = features[np.arange(len(tokens)), tokens.column]

    def loss(w: np.ndarray) -> float:
        gain = emitted @ w - logsumexp(log_p + features @ w, axis=-1)
        return -gain.sum() + w @ w / 2

    w = audit.witness(tokens)
    best = minimize(loss, np.zeros(len(w)), method="BFGS")
    assert loss(w) == pytest.approx(best.fun, abs=1e-4)
    gains = tokens.gains(w)
    assert -gains.sum() + w @ w / 2 == pytest.approx(loss(w), abs=1e-6)


def test_no_token_is_judged_by_a_witness_of_its_own_prompt() -> None:
    """Fold by fold, by hand."""
    tokens = contexts()
    [gains] = audit.held_out_gains(tokens)
    for fold in (0, 3):
        held = tokens.prompt % audit.FOLDS == fold
        w = audit.witness(tokens.of(~held))
        assert gains[held] == pytest.approx(tokens.of(held).gains(w))


def test_errors_are_those_of_prompts() -> None:
    """The variance of a ratio by its linear terms; the same prompts on both sides are paired."""
    values = np.array([1.0, 2.0, 4.0, 5.0, 5.0])
    prompt = np.array([0, 0, 1, 1, 2])
    mean = audit.mean_of([(values, prompt)])
    effects = np.array([3 - 2 * 3.4, 9 - 2 * 3.4, 5 - 3.4]) / 5
    assert mean.value == pytest.approx(3.4) and mean.prompts == 3
    assert mean.error == pytest.approx(np.sqrt((effects**2).sum() * 3 / 2))
    same = audit.mean_of([(values, prompt), (values - 1, prompt)])
    assert same.value == pytest.approx(1) and same.error == pytest.approx(0, abs=1e-12)
    other = audit.mean_of([(values, prompt), (values, prompt + 3)])
    assert other.error == pytest.approx(np.sqrt(2 * (effects**2).sum() * 6 / 5))


def test_the_nearest_temperature_is_the_likeliest() -> None:
    tokens, z, emitted = synthetic(2, temperature=0.6)

    def nats(temperature: float) -> float:
        return -log_softmax(z / temperature, axis=-1)[np.arange(len(z)), emitted].sum()

    exact = minimize_scalar(nats, bounds=(0.3, 1.5), method="bounded")
    at, low, high = audit.nearest_temperature(tokens)
    assert at == pytest.approx(exact.x, abs=0.004) and low < 0.6 < high
    assert nats(low) - exact.fun == pytest.approx(1.92, abs=0.15)
    assert np.allclose(COLDNESS, audit.COLDNESS)


def test_lossless_text_is_seldom_accused() -> None:
    """200 audits; 1% of them may be. The tokens are drawn anew in given contexts."""
    rng = np.random.default_rng(0)
    audits = [audited(redrawn(contexts(), lossless, 10, rng)) for _ in range(200)]
    assert sum(not single.is_consistent for single in audits) <= 5
    z, p = np.array([(single.z, single.score_p) for single in audits]).T
    assert abs(z.mean()) < 0.2 and z.std() == pytest.approx(1, abs=0.12)
    assert np.mean(p < 0.1) == pytest.approx(0.1, abs=0.06)


@pytest.mark.parametrize("family", FAMILIES)
def test_text_of_another_law_is_found_and_the_bound_holds(family: str) -> None:
    law = of_divergence(contexts(), FAMILIES[family], 0.1)
    assert divergence(contexts(), law) == pytest.approx(0.1, abs=1e-6)
    rng = np.random.default_rng(1)
    audits = [audited(redrawn(contexts(), law, 120, rng)) for _ in range(3)]
    assert all(not single.is_consistent for single in audits)
    bounds = [single.bound for single in audits if single.bound is not None]
    assert all(0 < bound.value < 0.1 + 2 * bound.error for bound in bounds)


def test_a_control_takes_out_what_both_share() -> None:
    """Two engines of one law that is not the target's are equal; a third is not."""
    rng = np.random.default_rng(2)
    law = of_divergence(contexts(), FAMILIES["colder"], 0.05)
    engine, control = (redrawn(contexts(), law, 100, rng) for _ in range(2))
    assert not audited(engine).is_consistent
    beside = audited(engine, control)
    assert beside.is_consistent
    assert abs(beside.bound.value) < 0.02 < beside.control.value
    worse = redrawn(contexts(), of_divergence(contexts(), FAMILIES["greedier"], 0.2), 100, rng)
    assert not audited(worse, control).is_consistent


def test_one_token_outside_the_support_is_proof_unless_the_control_has_them() -> None:
    tokens = contexts()

    def outside(count: int) -> Tokens:
        return replace(tokens, excluded=np.where(np.arange(len(tokens)) < count, 2, 0))

    assert audited(outside(1)).p == 0 and audited(outside(1)).outside == 1
    assert audited(outside(1), outside(1)).is_consistent
    assert not audited(outside(20), outside(0)).is_consistent


def test_the_parts_are_all_of_the_tokens() -> None:
    audits = audited(contexts())
    for parts in (audits.places, audits.entropies):
        tokens, gains = np.array(
            [(part.tokens, part.tokens * part.gain) for part in parts.values()]
        ).T
        assert tokens.sum() == PROMPTS * LENGTH
        assert gains.sum() / tokens.sum() == pytest.approx(audits.bound.value)
    assert audits.places["first"].tokens == PROMPTS
    assert {part.tokens for part in audits.entropies.values()} == {PROMPTS * LENGTH // 3}


def test_what_n_tokens_could_have_seen() -> None:
    """z is two-sided at a third of 1% and found with 80%: (2.935 + 0.842)² / 2n."""
    temperature, rule = audit.detectable(1000)
    assert temperature == pytest.approx(3.777**2 / 2000, rel=1e-3)
    assert rule == pytest.approx(15 * temperature)
