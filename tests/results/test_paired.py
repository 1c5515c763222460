"""Bold print: what a paired comparison sets apart, and how often it errs."""

from __future__ import annotations

import numpy as np
import pytest

from results.metrics.catalog import METRICS
from results.metrics.paired import best_of, paired_p_values
from results.metrics.summary import summarise
from tests.helpers.synthetic_cells import compared, sample


def column(values) -> dict[str, tuple[float, ...]]:
    """Items with these scores."""
    return {str(i): (float(value), 1.0) for i, value in enumerate(values)}


def best(*rows, better="higher", values=None):
    values = [float(np.mean(row)) for row in rows] if values is None else values
    return best_of("accuracy", values, [[column(row)] for row in rows], better)


def test_the_sums_give_the_metric():
    runs = []
    for i in range(5):
        own = sample(str(i), range(3 * i + 4), committed=[3] * i + [3], accepted=[2] * i + [2], score=float(i % 2),
                     finish=["length" if i else "eos"])
        steps = 3 * i + 3 - i % 2
        base = sample(str(i), range(steps + 1), committed=[1] * steps, accepted=[0] * steps)
        runs.append(compared(own, base, decode_s=1.0 + i, base_decode_s=4.0 + i, prefill_s=0.25))
    summary = summarise(runs, metric="exact_match", proportion=True)
    compared_by = [name for name, metric in METRICS.items() if metric.compared and summary.value(name) is not None]
    for name in compared_by:
        sums = np.array(list(summary.by_item(name).values())).sum(axis=0)
        assert METRICS[name].statistic(sums) == pytest.approx(summary.value(name)), name
    assert len(compared_by) > 15 and summary.by_item("nll") == {}


def test_a_leader_that_is_apart_is_alone_and_ties_share():
    rng = np.random.default_rng(0)
    base = rng.random(40)
    assert best(base + 0.5, base, base - 0.1) == [True, False, False]
    noise = rng.normal(0, 0.2, 40)
    assert best(base, base + noise - noise.mean() - 0.001, base - 0.5) == [True, True, False]
    assert best(base, base + noise - noise.mean(), better="higher") == [False, False], "nothing is apart"
    assert best(base + 0.5, base, better="lower") == [False, True]


def test_what_cannot_be_compared_is_not_bold():
    base = np.arange(30) / 30
    assert best_of("nll", [1.0, 0.0], [[column(base)], [column(base - 1)]], "lower") == [False, False]
    assert best(base + 1, base, better=None) == [False, False]
    assert best(base + 1, base, values=[None, 0.5]) == [False, False]
    assert best_of("accuracy", [1.5, 0.5], [[{}], [column(base)]], "higher") == [False, False]
    strangers = {f"x{name}": sums for name, sums in column(base + 1).items()}
    assert best_of("accuracy", [1.5, 0.5], [[strangers], [column(base)]], "higher") == [False, False]


def test_a_handful_of_prompts_is_never_apart():
    accuracy = METRICS["accuracy"]
    for n in range(1, 9):
        [found] = paired_p_values([(0, 1)], [[column(np.ones(n))], [column(np.zeros(n))]], accuracy)
        assert found == pytest.approx(2.0 ** (1 - n)), "all signs agree: a sign test gives no less"
    assert best(np.ones(5), np.zeros(5)) == [False, False] and best(np.ones(8), np.zeros(8)) == [True, False]


def test_a_mean_is_compared_column_by_column():
    base = [np.random.default_rng(i).random(20) for i in range(3)]
    rows = [[column(values + gain) for values in base] for gain in (0.3, 0.0)]
    assert best_of("accuracy", [1.0, 0.5], rows, "higher") == [True, False]
    assert best_of("accuracy", [1.0, 0.5], [rows[0], [rows[1][0], {}, rows[1][2]]], "higher") == [False, False]


def test_rows_that_are_equally_good_are_seldom_set_apart():
    """Six rows of one distribution: how often is any of them bold?"""
    rng, wrong = np.random.default_rng(2), 0
    for _ in range(200):
        hard = rng.random(24)
        wrong += any(best(*(hard + rng.normal(0, 0.3, 24) for _ in range(6))))
    assert wrong / 200 <= 0.07
