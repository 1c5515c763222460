"""Rows beside the frontier of lossless decoding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from results.metrics.frontier import beside_frontier, findings, standing
from results.metrics.verdict import Answered
from results.store.compared import Compared
from results.store.timed import Timed, TimedRun
from tests.helpers.synthetic_cells import made_up, sample

TEMPERATURES = (0.0, 0.5, 1.0, 1.3)
N, TIMED = 24, 12


def row(tau: float, nll: float, plain_nll: float, cycle: float = 2.0, clock: bool = True,
        setting: str = "") -> Answered:
    """N prompts of 60 tokens a prompt, each of `cycle` times a plain token's time; NLL of the row and of plain
    decoding, nats a token."""
    pairs = []
    for i in range(N):
        cycles = round(60 / tau)
        own = sample(f"p{i}", [0] * 60, committed=[60 // cycles] * cycles, nll=60 * nll)
        base = sample(f"p{i}", [0] * 61, committed=[1] * 60, nll=61 * plain_nll)
        arms = (TimedRun(60, cycles, 0.0, 0.001 * cycle * cycles), TimedRun(61, 60, 0.0, 0.06))
        pairs.append(Compared(own, base, Timed(f"p{i}", *arms, "host", "boot", "now") if clock and i < TIMED else None))
    return Answered(pairs, {pair.id: setting for pair in pairs} if setting else {})


def frontier(**more: float) -> dict[float, Answered]:
    """τ = 6, 5, 4, 3 and NLL = T nats."""
    return {t: row(tau, t, t, **more) for t, tau in zip(TEMPERATURES, (6.0, 5.0, 4.0, 3.0), strict=True)}


def test_lossless_decoding_lies_on_its_own_frontier() -> None:
    rows = frontier()
    found = beside_frontier(rows[0.5], rows, rows[1.0])
    assert found["frontier_answer"] == pytest.approx(1) and found["frontier_temperature"] == pytest.approx(0.5)
    assert found["frontier_same_speed"] == pytest.approx(0.5) and found["frontier_nll"] == pytest.approx(0, abs=1e-9)
    assert found["frontier_tau"] == pytest.approx(0, abs=1e-9)
    assert found["frontier_speed"] == pytest.approx(60 / (12 * 2)), "12 cycles of two tokens' time"


def test_a_rule_is_compared_at_equal_likelihood_and_at_equal_speed() -> None:
    """τ = 5 at 0.9 nats: lossless decoding as likely (T = 0.9) costs 14.4 cycles; as fast (T = 0.5) it has 0.5 nats."""
    rows = frontier()
    found = beside_frontier(row(5.0, 0.9, 1.0), rows, rows[1.0])
    assert found["frontier_answer"] == pytest.approx((12 * 0.2 + 15 * 0.8) / 12)
    assert found["frontier_same_speed"] == pytest.approx(0.5) and found["frontier_nll"] == pytest.approx(0.4)
    summary = made_up().summary.with_values(**found)
    assert standing(summary) == "above"
    [said] = findings([("MARS", summary)])
    assert said.startswith("MARS lies above the frontier: answers 1.20×")
    assert said.endswith("as fast as lossless decoding at T = 0.50, and 0.40 nats worse.")


def test_a_dear_cycle_lies_below_and_prices_are_ratios_to_the_own_baseline() -> None:
    rows = frontier()
    found = beside_frontier(row(5.0, 0.5, 1.0, cycle=3.0), rows, rows[1.0])
    assert found["frontier_answer"] == pytest.approx(2 / 3)
    assert standing(made_up().summary.with_values(**found)) == "below"
    slow = [replace(pair, timed=None if pair.timed is None else replace(
        pair.timed, own=replace(pair.timed.own, decode_s=2 * pair.timed.own.decode_s),
        baseline=replace(pair.timed.baseline, decode_s=2 * pair.timed.baseline.decode_s)))
            for pair in row(5.0, 0.5, 1.0, cycle=3.0).pairs]
    assert beside_frontier(Answered(slow), rows, rows[1.0])["frontier_answer"] == pytest.approx(2 / 3), "a slower day"


def test_plain_decoding_is_the_frontier_where_it_is_faster() -> None:
    """A cycle of five tokens' time: at T = 0 lossless decoding costs 50 tokens, at 0.5 and above 60 and more, plain
    decoding 60. A rule of τ = 5 with a cycle of 4 costs 48."""
    rows = frontier(cycle=5.0)
    assert beside_frontier(row(5.0, 1.0, 1.0, cycle=4.0), rows, rows[1.0])["frontier_answer"] == pytest.approx(60 / 48)
    assert beside_frontier(row(5.0, 0.0, 1.0, cycle=4.0), rows, rows[1.0])["frontier_answer"] == pytest.approx(50 / 48)
    slower = beside_frontier(rows[1.0], rows, rows[1.0])
    assert slower["frontier_answer"] == pytest.approx(0.8), "lossless decoding of 15 cycles is slower than plain"
    assert slower["frontier_tau"] == pytest.approx(0, abs=1e-9), "τ is compared with lossless speculation"


def test_a_chance_in_length_does_not_make_plain_decoding_the_frontier() -> None:
    """The lossless row at T = 0 commits six tokens a cycle of five tokens' time, so that it is faster than plain
    decoding, but its answers happened to be half as long again."""
    rows = frontier(cycle=5.0)
    longer = [replace(pair, sample=replace(pair.sample, output_ids=[0] * 90, committed=[6] * 15, nll=0.0))
              for pair in rows[0.0].pairs]
    rows[0.0] = Answered([pair if pair.timed is None else replace(pair, timed=replace(
        pair.timed, own=TimedRun(90, 15, 0.0, 0.075))) for pair in longer])
    found = beside_frontier(row(5.0, 0.0, 1.0, cycle=4.0), rows, rows[1.0])
    assert found["frontier_answer"] == pytest.approx(75 / 48), "15 cycles of five: what its answers did cost"


def test_off_the_curve_there_is_no_comparison() -> None:
    rows = frontier()
    found = beside_frontier(row(10.0, 1.6, 1.0), rows, rows[1.0])
    assert "frontier_answer" not in found and "frontier_nll" not in found and found["frontier_speed"] > 0
    summary = made_up().summary.with_values(**found)
    assert standing(summary) is None
    [said] = findings([("x", summary)])
    assert "not compared at equal likelihood" in said and "as fast at no temperature" in said
    assert beside_frontier(row(5.0, 0.9, 1.0, clock=False), rows, rows[1.0]) == {}, "no clock"


def test_each_setting_of_a_row_has_its_own_price() -> None:
    rows = frontier()
    cheap, dear = row(5.0, 0.5, 0.5, cycle=1.0, setting="cheap"), row(5.0, 0.5, 0.5, cycle=3.0, setting="dear")
    half = {pair.id for i, pair in enumerate(cheap.pairs) if i % 2}
    mixed = Answered([one if one.id in half else other for one, other in zip(cheap.pairs, dear.pairs, strict=True)],
                {pair.id: "cheap" if pair.id in half else "dear" for pair in cheap.pairs})
    assert beside_frontier(mixed, rows, rows[1.0])["frontier_speed"] == pytest.approx(60 / (12 * 2))
