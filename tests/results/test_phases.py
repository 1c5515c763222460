"""Where the time went."""

from __future__ import annotations

import pytest

from results.metrics.catalog import METRICS
from results.metrics.phases import NAMES, time_shares
from results.store.sample import TimedRun
from tests.helpers.synthetic_cells import made_up

PHASES = {"draft": 0.002, "verify": 0.005, "accept": 0.002, "commit": 0.001, "head": 0.0005, "cycle": 0.0101}
RUNS = [TimedRun(9, 3, 0.25, 3.0), TimedRun(9, 3, 0.75, 6.0)]
"""One second of prefill, nine of decoding."""


def test_shares_are_of_all_time_and_add_up():
    found = time_shares(RUNS, PHASES)
    shares = [found[name] for name in ("prefill_share", "draft_time_share", "verify_share", "accept_share")]
    assert shares == pytest.approx([0.1, 0.18, 0.45, 0.27]) and sum(shares) == pytest.approx(1)
    assert [found[name] for name in NAMES[4:]] == pytest.approx([10, 7, 2.5, 2.5 / 7])
    assert set(found) == {*NAMES, *(f"{name}_ci95" for name in NAMES), "phases_ci95"} and set(NAMES) <= set(METRICS)


def test_what_the_pass_could_not_tell_is_unknown():
    assert time_shares(RUNS, None) == {} == time_shares([], PHASES)
    found = time_shares(RUNS, {name: x for name, x in PHASES.items() if name != "head"})
    assert found["head_ms"] is None and found["head_share"] is None and found["forward_ms"] == pytest.approx(7)


def scaled(*factors: float) -> list[dict[str, float]]:
    """A prompt for each factor, whose drafting took so many times as long."""
    return [PHASES | {"draft": factor * PHASES["draft"]} for factor in factors]


def test_intervals_are_over_the_prompts_of_both_passes():
    found = time_shares(RUNS, PHASES, scaled(0.5, 1.0, 1.5))
    for name in ("prefill_share", "draft_time_share", "verify_share", "accept_share", "cycle_ms"):
        low, high = found[f"{name}_ci95"]
        assert low < found[name] < high
    assert found["cycle_ms_ci95"] == pytest.approx((9, 11)), "the ends: one prompt drawn three times"
    assert found["prefill_share_ci95"] == pytest.approx((0.25 / 3.25, 0.75 / 6.75))
    assert found["forward_ms_ci95"] == pytest.approx((7, 7)), "only drafting varies"
    assert made_up().summary.with_values(**found).phases_ci95["draft"] == pytest.approx((0.001, 0.003))
    assert found["phases_ci95"]["other"] == pytest.approx((0.003, 0.003))


@pytest.mark.parametrize(("runs", "prompts"), [(RUNS, scaled(1.0)), (RUNS[:1], scaled(0.5, 1.5)), (RUNS, [])])
def test_one_prompt_has_no_interval(runs: list[TimedRun], prompts: list[dict[str, float]]):
    found = time_shares(runs, PHASES, prompts)
    assert {found[f"{name}_ci95"] for name in NAMES} == {None} and found["cycle_ms"] == pytest.approx(10)
