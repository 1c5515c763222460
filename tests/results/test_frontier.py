"""Rows beside the fastest lossless decoding that distorts no more, and the words of a verdict:
one-sided tests on the ratio of speeds, corrected for one number of settings."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from results.metrics.delta import Between, Estimate
from results.metrics.frontier import Lossless, beside_lossless
from results.metrics.summary import scores_by_item
from results.metrics.verdict import ALPHA, FAMILY, LEVEL, Answered, Judged
from results.store.sample import Compared, Timed, TimedRun
from tests.helpers.synthetic_cells import compared, sample

DISTORTION = {0.0: 0.4, 0.5: 0.1, 1.0: 0.0}


TAU = {0.0: 6.0, 0.5: 5.0, 1.0: 4.0}


N, TIMED, SECONDS = 24, 12, 0.001


FAR = "undecided, since no lossless setting distorts as much"


def nats(value: float, error: float = 0.0) -> Estimate:
    return Estimate(value, error, N - 1.0, log=False)


def row(
    tau: float,
    cycle: float = 2.0,
    clock: bool = True,
    length: int = 60,
    distortion: float = 0.0,
    noise: float = 0.0,
    plain: float = 1.0,
    prefill: float = 0.0,
    session: str = "now",
) -> Answered:
    """N prompts of `length` tokens, each cycle of `cycle` milliseconds, a token of plain decoding
    of `plain`, a prompt of `prefill`. `noise`: relative spread of a cycle's time over prompts."""
    pairs, spread = [], np.random.default_rng(0).normal(1, noise, N)
    for i in range(N):
        cycles = round(length / tau)
        own = sample(f"p{i}", [0] * length, committed=[length // cycles] * cycles, nll=0.0)
        base = sample(f"p{i}", [0] * 60, committed=[1] * 60, nll=0.0)
        arms = (
            TimedRun(length, cycles, SECONDS * prefill, SECONDS * cycle * cycles * spread[i]),
            TimedRun(60, 60, SECONDS * prefill, SECONDS * plain * 60),
        )
        timed = Timed(f"p{i}", *arms, "host", "boot", session) if clock and i < TIMED else None
        pairs.append(Compared(own, base, timed))
    return Answered(pairs, distortion=nats(distortion))


def lossless(**more: float) -> list[Lossless]:
    """τ = 6, 5 and 4; beside the fast setting a slow one, on the row's own draft."""
    fast = [
        Lossless("fast", t, row(tau, **more).pairs, nats(DISTORTION[t])) for t, tau in TAU.items()
    ]
    slower = {**more, "cycle": 1.5 * more.get("cycle", 2.0)}
    slow = [
        Lossless("slow", t, row(tau, **slower).pairs, nats(DISTORTION[t]), same_draft=True)
        for t, tau in TAU.items()
    ]
    return [*fast, *slow]


def test_a_lossless_setting_is_as_fast_as_itself() -> None:
    beside = beside_lossless(row(5.0, distortion=0.1), 1.0, lossless())
    assert (
        beside["equal_d_speed"]
        == beside["equal_d_answer"]
        == beside["equal_d_length"]
        == pytest.approx(1)
    )
    assert beside["equal_d_temperature"] == pytest.approx(0.5)
    assert beside["equal_d_speed_own"] == pytest.approx(1.5), "the slow one is its own draft"


def test_between_two_temperatures_cost_and_distortion_lie_between_theirs() -> None:
    beside = beside_lossless(row(5.0, distortion=0.05), 1.0, lossless())
    assert beside["equal_d_temperature"] == pytest.approx(0.75)
    assert beside["equal_d_speed"] == pytest.approx((2 / 5 + 2 / 4) / 2 / (2 / 5))
    assert beside["judged"].beyond == 0


def test_the_fastest_that_distorts_no_more_may_distort_less() -> None:
    """τ at T = 0.5 is above that at 0."""
    lines = [*lossless(), Lossless("hot", 0.5, row(12.0).pairs, nats(0.1))]
    beside = beside_lossless(row(5.0, distortion=0.3), 1.0, lines)
    assert beside["equal_d_temperature"] == 0.5 and beside["equal_d_speed"] == pytest.approx(5 / 12)


def test_a_prompt_counts_in_the_time_of_a_token() -> None:
    """12 cycles of 2 ms and a prompt of 6 ms are 30 ms for 60 tokens; of 15 cycles 36 ms."""
    beside = beside_lossless(row(5.0, prefill=6.0), 1.0, lossless(prefill=6.0))
    assert beside["equal_d_speed"] == pytest.approx(36 / 30)


def test_answers_half_as_long_are_a_gain_by_the_answer_alone() -> None:
    beside = beside_lossless(row(5.0, distortion=0.1, length=30), 1.0, lossless())
    assert beside["equal_d_speed"] == pytest.approx(1) and beside[
        "equal_d_answer"
    ] == pytest.approx(2)
    assert beside["equal_d_length"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("tau", "distortion", "said"),
    [
        (6.0, 0.1, "gain"),
        (4.9, 0.1, "no gain above 5%"),
        (7.5, 0.5, FAR),
        (5.0, 0.5, "no gain above 5%"),
    ],
)
def test_the_verdict_in_words(tau: float, distortion: float, said: str) -> None:
    beside = beside_lossless(row(tau, distortion=distortion, noise=0.02), 1.0, lossless())
    assert beside["judged"].verdict.text == said


def test_a_row_at_temperature_0_is_compared_with_greedy_decoding() -> None:
    """Its distortion, that from the target at T = 1, may lie below greedy decoding's by chance."""
    greedy = [setting for setting in lossless() if setting.temperature == 0]
    beside = beside_lossless(row(12.0, distortion=0.39, noise=0.02), 0.0, greedy)
    assert beside["equal_d_speed"] == pytest.approx(2, rel=0.02)
    assert beside["judged"].verdict.text == "gain"
    far = beside_lossless(row(12.0, distortion=0.7, noise=0.02), 0.0, greedy)
    assert far["judged"].verdict.text == FAR


def test_a_token_of_greedy_plain_decoding_is_cheaper() -> None:
    """Greedy rows whose sampler costs nothing: 2 ms per cycle beside 0.8 ms per token of plain
    decoding, sampled ones beside 1 ms. Where all were timed in one session, seconds decide."""
    lines = [
        replace(setting, pairs=row(TAU[setting.temperature], plain=0.8).pairs)
        if setting.temperature == 0
        else setting
        for setting in lossless()
        if setting.setting == "fast"
    ]
    beside = beside_lossless(row(6.0, distortion=0.4), 1.0, lines)
    assert beside["equal_d_speed"] == pytest.approx(1) and beside["equal_d_temperature"] == 0


def test_prices_are_ratios_to_the_own_baseline() -> None:
    own = row(5.0, cycle=3.0, distortion=0.1)
    slower = row(5.0, cycle=6.0, distortion=0.1, plain=2.0)
    for setting in (own, slower):
        assert beside_lossless(setting, 1.0, lossless())["equal_d_speed"] == pytest.approx(2 / 3)


def test_plain_decoding_is_compared_with_where_it_is_faster() -> None:
    """A cycle of five tokens' time: lossless decoding of T = 0.5 costs a token, plain decoding
    too, at T = 1 1.25. A rule of τ = 5 with a cycle of 4 costs 0.8."""
    beside = beside_lossless(row(5.0, cycle=4.0, distortion=0.05), 1.0, lossless(cycle=5.0))
    assert beside["equal_d_speed"] == pytest.approx(1.25)


def test_without_a_clock_or_a_distortion_there_is_no_verdict() -> None:
    assert beside_lossless(row(5.0, clock=False, distortion=0.1), 1.0, lossless()) == {}
    assert beside_lossless(replace(row(5.0), distortion=None), 1.0, lossless()) == {}
    clockless = [replace(setting, pairs=row(5.0, clock=False).pairs) for setting in lossless()]
    assert beside_lossless(row(5.0, distortion=0.1), 1.0, clockless) == {}


def test_each_setting_of_a_row_has_its_own_price() -> None:
    cheap, dear = row(5.0, cycle=1.0), row(5.0, cycle=3.0)
    half = {pair.id for i, pair in enumerate(cheap.pairs) if i % 2}
    mixed = Answered(
        [
            setting if setting.id in half else other
            for setting, other in zip(cheap.pairs, dear.pairs, strict=True)
        ],
        {pair.id: "cheap" if pair.id in half else "dear" for pair in cheap.pairs},
        nats(0.1),
    )
    assert beside_lossless(mixed, 1.0, lossless())["equal_d_speed"] == pytest.approx(1), (
        "a cycle of two tokens' time on average"
    )


def judged(ratio: float, error: float = 0.01, beyond: float = 0.0, n: int = 64) -> Judged:
    return Judged(speed=Estimate(ratio, error, 1e6), beyond=beyond, n=n)


Z = NormalDist().inv_cdf(1 - LEVEL)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (judged(1.1), "gain"),
        (judged(math.exp(0.01 * Z + 1e-4)), "gain"),
        (judged(1.04), "gain"),
        (judged(math.exp(0.01 * Z - 1e-4), 0.0101), "undecided"),
        (judged(0.9), "no gain above 5%"),
        (judged(1.05 / math.exp(0.01 * Z + 1e-4)), "no gain above 5%"),
        (judged(1.03, 0.02), "undecided"),
        (judged(1.1, 0.1), "undecided"),
        (judged(2.0, beyond=0.96), "undecided"),
        (judged(0.9, beyond=0.96), "no gain above 5%"),
        (judged(2.0, beyond=0.94), "gain"),
    ],
)
def test_what_each_evidence_gives(given: Judged, kind: str) -> None:
    assert given.verdict.kind == kind


def test_the_level_is_bonferronis() -> None:
    """As statsmodels corrects the p-value of one of so many."""
    speed = Estimate(1.027, 0.01, 47.0)
    p_values = [speed.p_above(1.0), *[1.0] * (FAMILY - 1)]
    assert (multipletests(p_values, ALPHA, method="bonferroni")[0][0]) == (
        speed.p_above(1.0) <= LEVEL
    )


def test_how_many_prompts_would_decide() -> None:
    """The error shrinks with the root of their number: of a gain and of its opposite the nearer one
    decides."""
    near, room = judged(math.exp(0.01), 0.05), math.log(1.05) - 0.01
    assert near.verdict.needed == pytest.approx(64 * (Z * 0.05 / room) ** 2, rel=0.01)
    # what differs between sessions does not shrink
    apart = replace(near, between=Between(method=5e-5), sessions=1)
    left = (room / Z) ** 2 - 1e-4
    assert apart.verdict.needed == pytest.approx(64 * (0.05**2 - 1e-4) / left, rel=0.01)
    far = judged(1.5, 0.4)
    assert far.verdict.needed == pytest.approx(64 * (Z * 0.4 / math.log(1.5)) ** 2, rel=0.01)
    assert judged(1.0247, 5.0).verdict.text == "undecided, n > 100,000"
    beyond = judged(2.0, beyond=1.0).verdict
    assert beyond.text == "undecided, since no lossless setting distorts as much"


def test_several_samples_of_a_prompt_are_one_item() -> None:
    held = [
        compared(
            sample(f"{i}/{j}", [1], score=float(j % 2), group=str(i)),
            sample(f"{i}/{j}", [2], score=float(i)),
        )
        for i in range(2)
        for j in range(10)
    ]
    assert [(pair.baseline.score, pair.sample.score) for pair in scores_by_item(held)] == [
        (0.0, 0.5),
        (1.0, 0.5),
    ]
