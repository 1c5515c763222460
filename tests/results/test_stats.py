"""Intervals by hand, and paired comparisons: what is set apart in bold, and how often that errs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from results.metrics import intervals
from results.metrics.catalog import METRICS
from results.metrics.delta import ratio
from results.metrics.paired import best_of, paired_p_values, relative


@pytest.mark.parametrize(("right", "n"), [(8, 10), (10, 10), (0, 6), (1, 1)])
def test_wilson_is_that_of_statsmodels(right, n):
    expected = proportion_confint(right, n, method="wilson")
    assert intervals.proportion_interval(right, n) == pytest.approx(expected, abs=1e-6)
    assert intervals.proportion_interval(0, 0) is None


def test_the_interval_of_a_pooled_ratio_weighs_prompts_by_their_size():
    # one prompt of 100 cycles at 3 tokens each and fifty of 2 cycles at 1: drawn never, once or
    # twice
    low, high = intervals.sums_interval([(300, 100)] + [(2, 2)] * 50, ratio)
    assert low == pytest.approx(1.0) and high > (600 + 98) / (200 + 98) - 0.1
    assert intervals.sums_interval([(3, 1)], ratio) is None


def column(values) -> dict[str, tuple[float, ...]]:
    """Items with these scores."""
    return {str(i): (float(value), 1.0) for i, value in enumerate(values)}


def best(*rows, better="higher", values=None):
    values = [float(np.mean(row)) for row in rows] if values is None else values
    return best_of("accuracy", values, [[column(row)] for row in rows], better)


def test_a_leader_that_is_apart_is_alone_and_ties_share():
    rng = np.random.default_rng(0)
    base, noise = rng.random(40), rng.normal(0, 0.2, 40)
    tied = base + noise - noise.mean()
    assert best(base + 0.5, base, base - 0.1) == [True, False, False]
    assert best(base, tied - 0.001, base - 0.5) == [True, True, False]
    assert best(base, tied) == [False, False], "nothing is apart"
    assert best(base + 0.5, base, better="lower") == [False, True]


def test_what_cannot_be_compared_is_not_bold():
    base = np.arange(30) / 30
    strangers = {f"x{name}": sums for name, sums in column(base + 1).items()}
    neither = [False, False]
    assert best_of("nll", [1.0, 0.0], [[column(base)], [column(base - 1)]], "lower") == neither
    assert best(base + 1, base, better=None) == best(base + 1, base, values=[None, 0.5]) == neither
    for other in ({}, strangers):
        assert best_of("accuracy", [1.5, 0.5], [[other], [column(base)]], "higher") == neither


def test_a_handful_of_prompts_is_never_apart():
    accuracy = METRICS["accuracy"]
    for n in range(1, 9):
        [found] = paired_p_values([(0, 1)], [[column(np.ones(n))], [column(np.zeros(n))]], accuracy)
        assert found == pytest.approx(2.0 ** (1 - n)), "all signs agree: a sign test gives no less"
    assert [best(np.ones(n), np.zeros(n))[0] for n in (5, 8)] == [False, True]


def test_a_mean_is_compared_column_by_column():
    base = [np.random.default_rng(i).random(20) for i in range(3)]
    rows = [[column(values + gain) for values in base] for gain in (0.3, 0.0)]
    assert best_of("accuracy", [1.0, 0.5], rows, "higher") == [True, False]
    rows[1][1] = {}
    assert best_of("accuracy", [1.0, 0.5], rows, "higher") == [False, False]


def test_rows_that_are_equally_good_are_seldom_set_apart():
    """Six rows of one distribution: how often is any of them bold?"""
    rng, wrong = np.random.default_rng(2), 0
    for _ in range(200):
        hard = rng.random(24)
        wrong += any(best(*(hard + rng.normal(0, 0.3, 24) for _ in range(6))))
    assert wrong / 200 <= 0.07


items = st.dictionaries(st.sampled_from("abcdef"), st.tuples(*[st.floats(0.5, 50)] * 4), min_size=1)


@settings(max_examples=20)
@given(mine=items, other=items)
def test_a_relative_number_is_that_of_the_common_prompts(mine, other):
    common = sorted(mine.keys() & other.keys())
    value, interval = relative("speedup", "over", mine, other)
    if not common:
        assert (value, interval) == (None, None)
        return

    def speedup(side):
        tokens, seconds, base_tokens, base_seconds = np.sum([side[i] for i in common], axis=0)
        return (tokens / seconds) / (base_tokens / base_seconds)

    assert value == pytest.approx(speedup(mine) / speedup(other))
    assert (interval is None) == (len(common) < 3)
    assert interval is None or interval[0] <= interval[1]
    own = {i: sums[:2] for i, sums in mine.items()}
    assert relative("tau", "minus", own, own) in ((0, None), (0, (0, 0)))
