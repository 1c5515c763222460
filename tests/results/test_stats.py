"""Intervals and tests against hand-computed values and against their promised coverage."""

import math

import numpy as np
import pytest

from results.metrics import intervals
from results.metrics.delta import clocked_interval


def test_wilson_by_hand():
    # z = 1.959964: centre (p + z²/2n)/(1 + z²/n), half width z√(p(1−p)/n + z²/4n²)/(1 + z²/n)
    z, p, n = 1.959964, 0.8, 10
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert intervals.proportion_interval(8, 10) == pytest.approx((centre - half, centre + half), abs=1e-6)
    low, high = intervals.proportion_interval(10, 10)
    assert low == pytest.approx(0.7225, abs=1e-4) and high == 1.0
    assert intervals.proportion_interval(0, 6)[0] == 0.0
    assert intervals.proportion_interval(0, 0) is None


@pytest.mark.parametrize(
    ("a", "b", "similarity"),
    [([], [], 1.0), ([1, 2, 3], [1, 2, 3], 1.0), ([1, 2, 3], [], 0.0), ([1, 2, 3, 4], [1, 9, 3, 4], 0.75),
     ([100000, 2], [100000, 5, 2, 7], 0.5), ([1, 2], [3, 4], 0.0)],
)
def test_edit_similarity(a, b, similarity):
    assert intervals.edit_similarity(a, b) == pytest.approx(similarity)
    assert intervals.edit_similarity(b, a) == pytest.approx(similarity)


def test_the_interval_of_a_pooled_ratio_weighs_prompts_by_their_size():
    # one prompt of 100 cycles at 3 tokens each and fifty of 2 cycles at 1: drawn never, once or twice
    low, high = intervals.ratio_interval([300] + [2] * 50, [100] + [2] * 50)
    assert low == pytest.approx(1.0) and high > (600 + 98) / (200 + 98) - 0.1
    assert intervals.ratio_interval([3], [1]) is None


def test_the_interval_is_paired():
    """Prompts differ wildly in speed, alike for both arms: resampling them together keeps the interval tight."""
    rng = np.random.default_rng(1)
    seconds = rng.lognormal(0, 1.5, 60)
    tokens = np.full(60, 50.0)
    low, high = clocked_interval(tokens, seconds, tokens, 2 * seconds * rng.normal(1, 0.01, 60))
    assert 1.97 < low < 2.0 < high < 2.03
