"""n=auto: where it stops, and that its intervals hold although it looked several times."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from results.metrics.looks import StoppingRule, is_narrow, level, looks, stated, stop, widened
from results.store.sample import Sample
from tests.helpers.synthetic_cells import sample


def drawn(size: int, rng: np.random.Generator, spread: float = 0.3, right: float = 0.8) -> list[Sample]:
    """Prompts of twelve cycles whose accept length varies from prompt to prompt about 4."""
    samples = []
    for i in range(size):
        cycles = rng.poisson(4 * np.exp(rng.normal(-spread**2 / 2, spread)), 12) + 1
        samples.append(sample(f"p{i}", committed=cycles.tolist(), accepted=(cycles - 1).tolist(),
                              score=float(rng.random() < right)))
    return samples


@given(st.integers(1, 5000))
def test_looks_double_up_to_the_whole_task(size: int) -> None:
    steps = looks(size)
    assert steps[-1] == size and all(later == 2 * step for step, later in pairwise(steps[:-1]))
    assert len(steps) == 1 or steps[0] == 32
    assert level(size) == pytest.approx(1 - 0.05 / len(steps))


def test_the_first_narrow_look_ends_the_cell() -> None:
    rng = np.random.default_rng(0)
    samples: list[Sample | None] = list(drawn(300, rng))
    assert looks(300) == [32, 64, 128, 256, 300] and level(300) == pytest.approx(0.99)
    ends = {limit: stop(samples, StoppingRule(tau=limit), True) for limit in (0.001, 0.05, 0.1, 0.5)}
    assert ends[0.001] == 300 and ends[0.5] == 32, "all prompts where no look is narrow enough"
    assert sorted(ends.values(), reverse=True) == list(ends.values())
    for limit, n in ends.items():
        known = [one for one in samples[:n] if one is not None]
        assert n == 300 or is_narrow(known, StoppingRule(tau=limit), True, 0.99)
        value, interval = widened(known, True, 0.99)["tau"]
        assert n == 300 or (interval[1] - interval[0]) / 2 <= limit * value
    assert stop([*samples[:40], None, *samples[41:]], StoppingRule(tau=0.001), True) == 64, "an incomplete look"
    assert stop([None] * 300, StoppingRule(tau=0.5), True) == 32
    assert stop(samples[:20], StoppingRule(tau=0.001), True) == 20, "a task smaller than the first look"


def test_both_metrics_must_be_narrow() -> None:
    samples = drawn(300, np.random.default_rng(1))
    alone = [stop(samples, rule, True) for rule in (StoppingRule(tau=0.2), StoppingRule(accuracy=0.1))]
    assert stop(samples, StoppingRule(0.2, 0.1), True) == max(alone) > min(alone)
    wrong = [sample(f"p{i}", committed=[2], score=0.0) for i in range(300)]
    assert stop(wrong, StoppingRule(accuracy=0.1), True) == 300, "no relative width without a right answer"


@pytest.mark.parametrize("metric", ["tau", "accuracy"])
def test_intervals_cover_the_truth_however_often_it_was_looked(metric: str) -> None:
    """A cell stops where its interval happens to be narrow; 95% must still cover the long-run value."""
    rng, covered, runs, stops = np.random.default_rng(2), 0, 60, set()
    limit = {"tau": StoppingRule(tau=0.06), "accuracy": StoppingRule(accuracy=0.12)}[metric]
    truth = {"tau": 5.0, "accuracy": 0.8}[metric]  # E[Poisson] + 1, of the mean rate 4
    for _ in range(runs):
        samples = drawn(256, rng)
        n = stop(samples, limit, True)
        stops.add(n)
        _, (low, high) = widened(samples[:n], True, level(256))[metric]
        covered += low <= truth <= high
    assert len(stops) > 1, "the rule chose between looks"
    assert covered >= binom.ppf(0.001, runs, 0.95)


def test_the_rule_in_words() -> None:
    assert stated(StoppingRule(0.02, 0.05), 300) == (
        "n = auto until τ ±2%, accuracy ±5%: looks at 32, 64, 128, 256, 300 prompts, each with intervals at 99% "
        "(95% over 5 looks)")
