"""Rows beside the frontier of lossless decoding at equal distortion."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from results.metrics.delta import Estimate
from results.metrics.frontier import Point, beside_frontier
from results.metrics.verdict import Answered, verdicts
from results.store.sample import Compared, Timed, TimedRun
from tests.helpers.synthetic_cells import sample

TEMPERATURES = (0.0, 0.5, 1.0, 1.3)
DISTORTION = {0.0: 0.4, 0.5: 0.1, 1.0: 0.0, 1.3: 0.05}
N, TIMED = 24, 12


def nats(value: float, error: float = 0.0) -> Estimate:
    return Estimate(value, error, N - 1.0, log=False)


def row(
    tau: float,
    nll: float,
    plain_nll: float,
    cycle: float = 2.0,
    clock: bool = True,
    length: int = 60,
    distortion: float = 0.0,
    noise: float = 0.0,
) -> Answered:
    """N prompts of `length` tokens, each cycle of `cycle` times a plain token's time; NLL of the
    row and of plain decoding, nats a token. `noise`: relative spread of the seconds of a cycle over
    prompts."""
    pairs, spread = [], np.random.default_rng(0).normal(1, noise, N)
    for i in range(N):
        cycles = round(length / tau)
        own = sample(f"p{i}", [0] * length, committed=[length // cycles] * cycles, nll=length * nll)
        base = sample(f"p{i}", [0] * 60, committed=[1] * 60, nll=60 * plain_nll)
        arms = (
            TimedRun(length, cycles, 0.0, 0.001 * cycle * cycles * spread[i]),
            TimedRun(60, 60, 0.0, 0.06),
        )
        pairs.append(
            Compared(
                own,
                base,
                Timed(f"p{i}", *arms, "host", "boot", "now") if clock and i < TIMED else None,
            )
        )
    return Answered(pairs, distortion=nats(distortion))


def frontier(**more: float) -> dict[float, Point]:
    """τ = 6, 5, 4, 3 and NLL = T nats; beside the best setting a slower one."""
    return {
        t: Point(
            {"fast": row(tau, t, t, **more).pairs, "slow": row(tau, t, t, cycle=20.0).pairs},
            nats(DISTORTION[t]),
        )
        for t, tau in zip(TEMPERATURES, (6.0, 5.0, 4.0, 3.0), strict=True)
    }


def test_lossless_decoding_lies_on_its_own_frontier() -> None:
    own = Answered(frontier()[0.5].settings["fast"], distortion=nats(0.1))
    found = beside_frontier(own, frontier(), 1.0)
    assert (
        found["equal_d_speed"]
        == found["equal_d_answer"]
        == found["equal_d_length"]
        == pytest.approx(1)
    )
    assert found["equal_d_temperature"] == pytest.approx(0.5)


def test_a_rule_is_compared_with_the_fastest_lossless_setting_that_is_as_far_from_the_target() -> (
    None
):
    """D = 0.05 lies halfway between T = 0.5 and 1 (and at 1.3, where decoding is slower): τ = 4.4
    there, not 5."""
    found = beside_frontier(row(5.0, 0.9, 1.0, distortion=0.05), frontier(), 1.0)
    assert found["equal_d_temperature"] == pytest.approx(0.75)
    assert found["equal_d_speed"] == pytest.approx((2 / 5 + 2 / 4) / 2 / (2 / 5))
    far = beside_frontier(row(5.0, 0.9, 1.0, distortion=0.3), frontier(), 1.0)
    assert (
        far["equal_d_temperature"] == pytest.approx(0.5 / 3)
        and far["equal_d_speed"] < found["equal_d_speed"]
    )
    coolest = {t: point for t, point in frontier().items() if t <= 1.0}
    assert (
        beside_frontier(row(5.0, 0.9, 1.0, distortion=0.05), coolest, 1.0)["judged"].beyond == 0
    ), "nothing is hotter"


def test_answers_half_as_long_are_a_gain_by_the_answer_alone() -> None:
    found = beside_frontier(row(5.0, 0.9, 1.0, distortion=0.1, length=30), frontier(), 1.0)
    assert found["equal_d_speed"] == pytest.approx(1) and found["equal_d_answer"] == pytest.approx(
        2
    )
    assert found["equal_d_length"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("tau", "distortion", "kind"),
    [(6.0, 0.1, "gain"), (4.9, 0.1, "no gain"), (5.0, 0.1, "no gain"), (6.0, 0.5, "beyond greedy")],
)
def test_the_verdict_is_at_equal_distortion(tau: float, distortion: float, kind: str) -> None:
    found = beside_frontier(row(tau, 0.9, 1.0, distortion=distortion, noise=0.02), frontier(), 1.0)
    assert verdicts({"own": found["judged"]})["own"].kind == kind


def test_at_temperature_0_every_distortion_is_beyond_greedy_decoding() -> None:
    alone = {0.0: replace(frontier()[0.0], distortion=nats(0.0))}
    found = beside_frontier(row(12.0, 0.0, 0.0, distortion=0.02), alone, 0.0)
    assert found["equal_d_speed"] == pytest.approx(2)
    assert verdicts({"own": found["judged"]})["own"].kind == "beyond greedy"
    assert beside_frontier(row(12.0, 0.0, 0.0), alone, 0.0)["judged"].beyond == 0, (
        "nothing is changed"
    )


def test_a_dear_cycle_lies_below_and_prices_are_ratios_to_the_own_baseline() -> None:
    own = row(5.0, 0.5, 1.0, cycle=3.0, distortion=0.1)
    assert beside_frontier(own, frontier(), 1.0)["equal_d_speed"] == pytest.approx(2 / 3)
    slow = [
        replace(
            pair,
            timed=None
            if pair.timed is None
            else replace(
                pair.timed,
                own=replace(pair.timed.own, decode_s=2 * pair.timed.own.decode_s),
                baseline=replace(pair.timed.baseline, decode_s=2 * pair.timed.baseline.decode_s),
            ),
        )
        for pair in own.pairs
    ]
    slower = replace(own, pairs=slow)
    assert beside_frontier(slower, frontier(), 1.0)["equal_d_speed"] == pytest.approx(2 / 3), (
        "a slower day"
    )


def test_plain_decoding_is_the_frontier_where_it_is_faster() -> None:
    """A cycle of five tokens' time: at T = 0 lossless decoding costs 50 tokens, at 0.5 and above 60
    and more, plain decoding 60. A rule of τ = 5 with a cycle of 4 costs 48."""
    line, own = frontier(cycle=5.0), {"cycle": 4.0, "distortion": 0.1}
    found = beside_frontier(row(5.0, 0.0, 1.0, **own), line, 1.0)
    assert found["equal_d_speed"] == pytest.approx(1.25)


def test_without_distortions_there_is_no_verdict() -> None:
    line = {
        t: replace(point, distortion=None if t == 0.5 else point.distortion)
        for t, point in frontier().items()
    }
    assert beside_frontier(row(5.0, 0.9, 1.0, distortion=0.1), line, 1.0) == {}
    clockless = row(5.0, 0.9, 1.0, distortion=0.1, clock=False)
    assert beside_frontier(clockless, frontier(), 1.0) == {}


def test_each_setting_of_a_row_has_its_own_price() -> None:
    cheap, dear = row(5.0, 0.5, 0.5, cycle=1.0), row(5.0, 0.5, 0.5, cycle=3.0)
    half = {pair.id for i, pair in enumerate(cheap.pairs) if i % 2}
    mixed = Answered(
        [
            one if one.id in half else other
            for one, other in zip(cheap.pairs, dear.pairs, strict=True)
        ],
        {pair.id: "cheap" if pair.id in half else "dear" for pair in cheap.pairs},
        nats(0.1),
    )
    assert beside_frontier(mixed, frontier(), 1.0)["equal_d_speed"] == pytest.approx(1), (
        "a cycle of two tokens' time on average"
    )
