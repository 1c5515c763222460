"""ARC's calibration: what is measured at a position, quantiles and their bounds, constants and their buckets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from bench.config.compose import composer
from bench.training.commands.calibrate import Calibrate
from methods.sampling import Sampling
from methods.training.rules.arc import BoundSample, fit, fit_buckets, measure, upper_quantile
from tests.helpers import rule_reference
from tests.helpers.rule_reference import softmax
from tests.helpers.tiny_models import language_model, prompts


@pytest.mark.parametrize("alternative", ["runner_up", "uniform"])
def test_a_position_is_measured_as_by_whole_forwards(alternative: str) -> None:
    """Every number again from forwards of the whole text with one token replaced, without a cache, in float64."""
    target, (context, answer) = language_model(layers=3), prompts(2, low=8, high=12)
    found = measure(target, context, answer, Sampling(0.8, top_k=20), count=99, top=10, alternative=alternative,
                    rng=np.random.default_rng(0))
    assert len(found) == len(answer)
    embedding = target.embedding.double().numpy()
    white = 1 / embedding.std(0, ddof=1)

    def logits(ids: list[int]) -> np.ndarray:
        return target.model(torch.tensor([ids])).logits[0, -1].double().detach().numpy()

    checked = 0
    for position, at in zip(found, reversed(range(len(answer))), strict=True):
        before = context + answer[:at]
        z = logits(before)
        order = np.argsort(-z)
        best, kept = order[0], order[:20]
        p = np.zeros(len(z))
        p[kept] = softmax(z[kept] / 0.8)
        others = order[1:2] if alternative == "runner_up" else order[1:10]
        distance = {other: np.sum((white * (embedding[other] - embedding[best])) ** 2) for other in others}
        other = min(distance, key=lambda token: abs(distance[token] - position.embedding_distance))
        assert position.embedding_distance == pytest.approx(distance[other], rel=1e-4), "an allowed alternative"
        q, r = (logits([*before, token]) for token in (best, other))
        union = sorted({*np.argsort(-q)[:10], *np.argsort(-r)[:10]})
        expected = rule_reference.distance("js", softmax(q[union]), softmax(r[union]))
        assert position.js == pytest.approx(expected, abs=1e-5)
        assert position.margin == pytest.approx(np.log(p[best] / p[other]) ** 2, rel=1e-3)
        positive = p[p > 0]
        assert position.entropy == pytest.approx(-(positive * np.log(positive)).sum() / np.log(len(z)), abs=1e-5)
        checked += 1
    assert checked == len(answer)


@pytest.mark.parametrize(("bound", "least"), [("clopper_pearson", 0.89), ("wilson", 0.84)])
def test_bounds_on_quantiles_cover_as_often_as_they_say(bound: str, least: float) -> None:
    """Clopper-Pearson at least as often, up to the noise of 1000 draws; Wilson's approximation about as often."""
    rng, delta = np.random.default_rng(1), 0.05
    true = stats.expon.ppf(1 - delta)
    found = [upper_quantile(rng.exponential(size=200), delta, bound, 0.9) for _ in range(1000)]
    share = np.mean(np.array(found) >= true)
    assert least <= share <= 0.97
    plain = [upper_quantile(rng.exponential(size=200), delta, "none", 0.9) for _ in range(1000)]
    assert np.mean(np.array(plain) >= true) < 0.7


def test_too_few_values_for_a_bound() -> None:
    with pytest.raises(ValueError, match="58 positions are too few for a clopper_pearson bound"):
        upper_quantile(np.arange(58.0), 0.05, "clopper_pearson", 0.95)
    assert upper_quantile(np.arange(59.0), 0.05, "clopper_pearson", 0.95) == 58.0  # 0.95^59 < 0.05 <= 0.95^58


def random_positions(n: int, seed: int = 0) -> list[BoundSample]:
    rng = np.random.default_rng(seed)
    distance, margin, entropy = rng.exponential(50, n), rng.exponential(4, n), rng.uniform(0, 1, n)
    js = np.minimum(0.002 * distance * rng.exponential(1, n) * (0.5 + entropy), np.log(2))
    rows = zip(js.tolist(), distance.tolist(), margin.tolist(), entropy.tolist(), strict=True)
    return [BoundSample(*row) for row in rows]


def test_constants_are_the_quantiles_of_algorithm_1() -> None:
    positions, delta = random_positions(400), 0.05
    js, distance, margin = (np.array([getattr(p, name) for p in positions])
                            for name in ("js", "embedding_distance", "margin"))
    found = fit(positions, delta=delta)
    c, a = np.quantile(js / distance, 0.95), np.quantile(js / margin, 0.95)
    assert (found.c, found.alpha_kappa) == (pytest.approx(c), pytest.approx(a))
    assert found.tau == pytest.approx(np.quantile(np.minimum(c * distance, a * margin), 0.95))
    assert np.mean(js <= found.c * distance) >= 0.95  # each bound alone covers; the smaller of both need not
    released = fit(positions, delta=delta, trim=0.005, slack=0.7)
    assert released.c == pytest.approx(np.quantile(np.sort(js / distance)[:398], 0.95))
    assert released.tau > found.tau


@pytest.mark.parametrize(("given", "refused"), [
    (["pair=llama31_8b"], "task=mini_instruct: the paper calibrates pair=llama31_8b on oasst1; give task=oasst1"),
    (["pair=qwen3_8b", "task=gsm8k"], "task=gsm8k: the paper calibrates pair=qwen3_8b on oasst1"),
    (["pair=llama31_8b", "task=oasst1"], ""), (["pair=local", "pair.target=x", "task=gsm8k"], ""), ([], "")])
def test_the_papers_pairs_are_calibrated_on_its_corpus(given: list[str], refused: str) -> None:
    with composer(name="calibrate") as hydra:
        config = hydra.point([*given, "engine.device=cpu"]).config
    if refused:
        with pytest.raises(ValueError, match=refused):
            Calibrate.from_config(config)
    else:
        assert Calibrate.from_config(config).alternative == "uniform"


def test_buckets_are_fitted_by_themselves() -> None:
    positions = random_positions(600)
    edges, buckets = fit_buckets(positions, 3, delta=0.05)
    assert [b.n for b in buckets] == [200, 200, 200] and edges == sorted(edges)
    low = [p for p in positions if p.entropy <= edges[0]]
    assert buckets[0] == fit(low, delta=0.05)
    assert buckets[0].c < buckets[2].c  # where it matters more, the scale is larger
    assert fit_buckets(positions, 1, delta=0.05) == ([], [fit(positions, delta=0.05)])
    same = [BoundSample(p.js, p.embedding_distance, p.margin, 0.5) for p in positions]
    with pytest.raises(ValueError, match="too many entropies are equal"):
        fit_buckets(same, 2, delta=0.05)
