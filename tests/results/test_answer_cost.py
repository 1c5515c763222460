"""Cost of an answer: by hand, and against slow references."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.metrics import intervals
from results.metrics.answers import ends_in_loop
from results.metrics.trace_metrics import relative_probability, trace_metrics
from results.store.cells import Store
from results.store.sample import Compared
from results.store.traces import TraceFolder
from tests.helpers.synthetic_cells import compared, sample, summed


def timed(id, cycles, base_tokens, decode_s=None, base_decode_s=0.0):
    """Ten tokens in so many cycles beside an answer of so many tokens of autoregressive decoding;
    not timed without seconds. A prefill takes 0.5 s."""
    own, base = (
        sample(id, range(tokens), committed=[1] * steps)
        for tokens, steps in ((10, cycles), (base_tokens, base_tokens - 1))
    )
    if decode_s is None:
        return Compared(own, base)
    return compared(own, base, decode_s=decode_s, base_decode_s=base_decode_s)


def test_answer_speedup_by_hand():
    runs = [
        timed("a", 3, 11, 3.0, 20.0),
        timed("b", 5, 11, 10.0, 30.0),
        timed("c", 7, 11, 7.0, 20.0),
        timed("d", 105, 31),
    ]
    found, untimed = (summed(pairs) for pairs in (runs, [timed("a", 3, 11)]))
    assert found.answer_speedup == pytest.approx((70 + 1.5) / (20 + 1.5)), "of the timed prompts"
    modelled = (60 * 70 / 30 + 4 * 0.5) / (120 * 20 / 15 + 4 * 0.5)
    assert found.answer_speedup_modelled == pytest.approx(modelled), (
        "the runaway among all prompts counts"
    )
    low, high = found.answer_speedup_modelled_ci95
    assert low < modelled < high
    assert untimed.answer_speedup is untimed.answer_speedup_modelled is None


def slow_loop(ids):
    return any(
        size <= len(ids) and all(ids[-i] == ids[-i - d] for i in range(1, size - d + 1))
        for d in range(1, 201)
        for size in [max(64, 4 * d)]
    )


@given(
    st.lists(st.integers(0, 2), max_size=80),
    st.lists(st.integers(0, 2), min_size=1, max_size=40),
    st.integers(0, 200),
)
def test_loops_are_those_of_the_definition(start, period, length):
    ids = start + (period * (length // len(period) + 1))[:length]
    assert ends_in_loop(ids) == slow_loop(ids)


@pytest.mark.parametrize(
    ("period", "length", "expected"),
    [
        (1, 63, False),
        (17, 64, False),
        (17, 68, True),
        (200, 800, True),
        (200, 799, False),
        (201, 1000, False),
    ],
)
def test_the_ends_of_the_definition(period, length, expected):
    assert ends_in_loop([-1, *(i % period for i in range(length))]) is expected


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60))
def test_the_interval_of_a_difference(pairs):
    base, own = np.array(pairs, float).T
    low, high = intervals.difference_interval(base, own)
    assert -1 <= low <= own.mean() - base.mean() <= high <= 1
    assert low < high, "no agreement is proof"
    assert intervals.difference_interval(own, base) == pytest.approx((-high, -low), abs=0.02)


def test_agreement_is_clopper_pearson_and_coverage_holds():
    for n in (10, 64, 200):
        end = 1 - 0.025 ** (1 / n)
        found = intervals.difference_interval(np.ones(n), np.ones(n))
        assert found == pytest.approx((-end, end), rel=0.05)
    rng, missed = np.random.default_rng(3), 0
    for _ in range(200):  # 20% of 40 answers change, 14% for the worse: truly −8 points
        change = rng.choice([-1, 0, 1], size=40, p=[0.14, 0.8, 0.06])
        low, high = intervals.difference_interval(1.0 * (change < 0), 1.0 * (change > 0))
        missed += not low <= -0.08 <= high
    assert missed / 200 <= 0.05


OUT = {
    "turn": 0,
    "cycle": 0,
    "node": [1, 2, 3, 4, -1],
    "parent": [0, 1, 2, 3, 4],
    "depth": [1, 2, 3, 4, 5],
    "rank": 0,
    "clause": ["relaxed", "relaxed", "strict", "argmax", "drawn"],
    "token": np.arange(5),
    "strict": [False, False, True, False, False],
    "p0": [0.1, 0.3, 0.01, 0.9, 0.5],
    "p1": [0.8, 0.6, 0.9, 0.9, 0.5],
    "p": [0.01, 0.2, 0.001, 1.0, 0.5],
}


def test_out_of_head_by_hand(tmp_path):
    traces = TraceFolder(Store(tmp_path).cell("cell"))
    traces.add(
        ["a", "b"], [{"prompt": "a", **OUT}, {"prompt": "b", **OUT, "clause": "drawn"}], None
    )

    for temperature, more, count in (
        (1.0, {"c": 10}, 1),  # the first: 0.125 of the largest; the second is in the head
        (0.5, {}, 1),
        (0.4, {}, 2),  # 0.5 ** 2.5
    ):
        tokens = {"a": 6, "b": 4} | more
        values = trace_metrics([traces], tokens, temperature)
        found = summed([]).with_values(**values)
        assert found.out_of_head_1k == pytest.approx(1000 * count / sum(tokens.values()))
        assert found.out_of_head_1k_ci95 == pytest.approx((0, 1000 * count / 6))


def test_relative_probability_is_that_of_the_processed_distribution():
    z = np.random.default_rng(0).normal(size=50)

    def softmax(logits):
        return np.exp(logits) / np.exp(logits).sum()

    raw, warm = softmax(z), softmax(z / 0.7)
    frame = pd.DataFrame({"p0": raw, "p1": raw.max(), "p": np.where(warm > 0.02, warm, 0)})
    assert relative_probability(frame, 0.7).to_numpy() == pytest.approx(
        np.where(warm > 0.02, warm / warm.max(), 0)
    )
    assert relative_probability(frame, 0.0).to_numpy() == pytest.approx(raw / raw.max())
