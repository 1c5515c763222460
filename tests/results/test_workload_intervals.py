"""The intervals a verdict on a workload rests on: what they come to by hand, and how often the verdict errs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as scipy_stats

from results.metrics import intervals
from results.metrics.delta import clocked_interval
from results.metrics.quality_loss import Estimate, answer_speed_estimate, relative_loss
from results.reports.advice import Candidate, advise
from results.store.compared import Compared
from tests.helpers.synthetic_cells import compared, sample

LIMIT, MIN, TRIED = 0.05, 20, 12


def interval(right: int, lost: int, level: float = 0.95, best: tuple[float, float] = (0.0, 1.0)) -> intervals.Interval:
    """Of so many right answers so many lost."""
    [found] = intervals.loss_intervals([1.0] * right, [0.0] * lost + [1.0] * (right - lost), [level], best)
    return found


@pytest.mark.parametrize("level", [0.95, intervals.together(TRIED)])
def test_no_loss_seen_is_not_no_loss(level: float) -> None:
    """Nothing lost of k right answers: 1 − (α / 2)^(1 / k), whatever the others are."""
    bound = pytest.approx(1 - ((1 - level) / 2) ** (1 / 24), rel=0.03)
    some = [1.0] * 24 + [0.0] * 76
    assert interval(24, 0, level)[1] == bound and intervals.loss_intervals(some, some, [level])[0][1] == bound
    low, high = interval(24, 0, level, best=(1.0, 1.0))
    assert low == 0 and high > 3 / 24, "agreement is at most full; the rule of three"


def test_right_or_wrong_is_clopper_pearson() -> None:
    exact = scipy_stats.binomtest(7, 50).proportion_ci(0.95, "exact")
    assert interval(50, 7, best=(1.0, 1.0)) == pytest.approx((exact.low, exact.high), rel=0.03)


def test_how_many_show_that_nothing_is_lost() -> None:
    for level in (0.95, intervals.together(TRIED)):
        count = intervals.fewest_to_show(LIMIT, level)
        assert interval(count - 5, 0, level)[1] > LIMIT >= interval(count + 5, 0, level)[1]
    assert intervals.fewest_to_show(0) is None


def test_the_level_of_all_together() -> None:
    assert intervals.together(1) == intervals.together(0) == 0.95
    assert intervals.together(10) == pytest.approx(0.995)


def test_the_speedup_interval_is_students_t_of_the_logarithm() -> None:
    """All answers of one length and one plain speed: the delta method leaves the spread of the seconds."""
    seconds, ones = np.array([1.0, 2.0, 3.0, 2.0]), np.ones(4)
    low, high = clocked_interval(ones, seconds, ones, ones)
    error = scipy_stats.t.ppf(0.975, 3) * np.std(seconds / 2, ddof=1) / 2
    assert (low, high) == pytest.approx((0.5 * np.exp(-error), 0.5 * np.exp(error)))
    assert clocked_interval([1], [1], [1], [1]) is None


@pytest.mark.parametrize("shared", [0.0, 0.08])
def test_settings_that_are_no_faster_are_seldom_called_a_gain(shared: float) -> None:
    """Twelve settings at 1.00x, with or without prompts that are easy for all of them."""
    rng, sims, n = np.random.default_rng(1), 200, 24
    gains = sum(advise([at_par(f"s{i}", rng, n, easy) for i in range(TRIED)], LIMIT, MIN).kind == "gain"
                for easy in shared * rng.standard_normal((sims, n)))
    assert gains / sims <= 0.06


def at_par(label: str, rng: np.random.Generator, n: int, easy: np.ndarray) -> Candidate:
    tokens = rng.integers(30, 97, n).astype(float)
    seconds, plain = (tokens * np.exp(0.1 * rng.standard_normal(n)) for _ in range(2))
    seconds = seconds * np.exp(-easy)
    interval = clocked_interval(tokens, seconds, tokens, plain, level=intervals.together(TRIED))
    return Candidate(label, True, 2.0, Estimate(float(plain.sum() / seconds.sum()), interval), Estimate(0.0), n)


def test_the_interval_of_the_speed_of_answers_covers_par() -> None:
    """Twenty answers of equally many passes on average, twelve of them timed, at 1.00×."""
    rng, missed = np.random.default_rng(5), 0
    for _ in range(60):
        pairs = [answered(i, rng, timed=i < 12) for i in range(20)]
        estimate = answer_speed_estimate(pairs, 1)
        low, high = estimate.interval
        missed += not low <= 1 <= high
        assert estimate.interval == estimate.alone and low < estimate.value < high
    assert missed / 60 <= 0.1


def test_more_settings_widen_it_and_repeats_do_not_narrow_it() -> None:
    rng = np.random.default_rng(6)
    pairs = [answered(i, rng, timed=True) for i in range(12)]
    one, many = answer_speed_estimate(pairs, 1), answer_speed_estimate(pairs, 12)
    assert many.interval[0] < one.interval[0] < one.value == many.value < one.interval[1] < many.interval[1]
    again = [replace(pair, sample=replace(pair.sample, id=f"{pair.id}/{j}", group=pair.id), timed=pair.timed)
             for pair in pairs for j in range(4)]
    repeated = answer_speed_estimate(again, 1)
    assert repeated.value == pytest.approx(one.value)
    assert repeated.interval[1] - repeated.interval[0] > 0.8 * (one.interval[1] - one.interval[0])
    assert answer_speed_estimate(pairs[:1], 1).interval is None


def answered(i: int, rng: np.random.Generator, timed: bool) -> Compared:
    own, base = rng.poisson(40, 2)
    arms = [sample(f"p{i}", range(cycles + 1), committed=[1] * cycles, accepted=[0] * cycles) for cycles in (own, base)]
    seconds = [cycles * float(np.exp(0.1 * rng.standard_normal())) for cycles in (own, base)]
    pair = compared(*arms, decode_s=seconds[0], base_decode_s=seconds[1])
    return pair if timed else replace(pair, timed=None)


@pytest.mark.parametrize(("loss", "right", "tried"), [(0.1, 20, 1), (0.1, 160, 1), (0.051, 300, 1), (0.1, 160, 6)])
def test_a_loss_above_the_limit_is_seldom_called_within_it(loss: float, right: int, tried: int) -> None:
    """Of plain decoding's right answers this share is lost, in each of the settings: how often is any within?"""
    lost = np.random.default_rng(2).binomial(right, loss, (500, tried)).min(axis=1)
    verdicts = {count: within(right, count, tried) for count in set(lost.tolist())}
    assert np.mean([verdicts[count] for count in lost.tolist()]) <= 0.05


def within(right: int, lost: int, tried: int) -> bool:
    pairs = {str(i): (float(i < right), float(lost <= i < right)) for i in range(right + 10)}
    found = Candidate("x", False, 2.0, Estimate(1.0), relative_loss(pairs, tried), len(pairs))
    return found.quality(LIMIT, MIN) == "within"


def test_a_small_loss_is_shown_by_enough_prompts() -> None:
    assert within(800, 4, TRIED) and not within(800, 40, TRIED)
