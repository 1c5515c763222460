"""What a rule gains over the lossless one, in parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.gains import PARTS, finding, gains
from tests.helpers.synthetic_cells import full_grid, table_spec

RUNS = ("own", "lossless", "exact", "greedy", "lossless_greedy")


def run(*cycles: list[int]) -> list[dict]:
    return [{"id": f"p{i}", "committed": committed} for i, committed in enumerate(cycles)]


def tau(samples: list[dict]) -> float:
    return sum(sum(s["committed"]) for s in samples) / sum(len(s["committed"]) for s in samples)


one_run = st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=6), min_size=4, max_size=4)


@given(st.fixed_dictionaries({name: one_run for name in RUNS}))
def test_the_parts_add_up_and_each_is_a_difference_of_accept_lengths(drawn: dict) -> None:
    runs = {name: run(*cycles) for name, cycles in drawn.items()}
    found = gains(runs)
    assert found["tau_gain"] == pytest.approx(tau(runs["own"]) - tau(runs["lossless"]))
    assert found["tau_gain"] == pytest.approx(sum(found[f"tau_gain_{part}"] for part in PARTS))
    assert found["tau_gain_q"] == pytest.approx(tau(runs["own"]) - tau(runs["exact"]))
    assert found["tau_gain_relaxed"] == pytest.approx(tau(runs["greedy"]) - tau(runs["lossless_greedy"]))
    for name in ("tau_gain", *(f"tau_gain_{part}" for part in PARTS)):
        low, high = found[f"{name}_ci95"]
        assert low <= high


def test_the_interval_is_paired() -> None:
    """Prompts differ a lot, but the rule gains exactly 1 on each: its interval has no width, those of both τ have."""
    lossless = run(*([length] * 10 for length in (1, 3, 5, 7)))
    own = run(*([length + 1] * 10 for length in (1, 3, 5, 7)))
    found = gains({"own": own, "lossless": lossless})
    assert found["tau_gain"] == pytest.approx(1.0) and found["tau_gain_ci95"] == pytest.approx([1.0, 1.0])
    assert set(found) == {"tau_gain", "tau_gain_ci95"}, "no parts without their cells"


def test_prompts_without_a_cycle_in_every_run_are_left_out() -> None:
    own, lossless = run([4], [2], [9]), run([2], [2])
    lossless.append({"id": "p2", "error": "boom"})
    assert gains({"own": own, "lossless": lossless})["tau_gain"] == pytest.approx(1.0)
    assert gains({"own": own[2:], "lossless": lossless}) == {}


def summary(gain: float, relaxed: float, q: float, low: float, high: float) -> dict:
    return {"n": 12, "tau_gain": gain, "tau_gain_ci95": [low, high], "tau_gain_relaxed": relaxed, "tau_gain_q": q,
            "tau_gain_greedier": gain - relaxed - q, "nll": 0.03, "lossless_nll": 0.06, "lossless_greedy_nll": 0.03,
            "accuracy": 0.5, "lossless_accuracy": 0.75}


@pytest.mark.parametrize(("given", "said"), [
    (summary(0.4, 0.0, 0.1, 0.2, 0.6), "most of it being greedier (+0.00 relaxation, +0.10 q_mode: draft, +0.30"),
    (summary(0.4, 0.3, 0.1, 0.2, 0.6), "a gain, most of it relaxation"),
    (summary(0.4, 0.1, 0.3, 0.2, 0.6), "a gain, most of it q_mode: draft"),
    (summary(0.1, 0.1, 0.0, -0.2, 0.3), "no difference that 12 prompts can show"),
    (summary(-2.0, -2.0, 0.0, -2.5, -1.5), "−2.00 [−2.50, −1.50] in τ, a loss"),
])
def test_the_finding_names_the_largest_part_only_where_there_is_a_gain(given: dict, said: str) -> None:
    sentence = finding("MARS", given)
    assert sentence.startswith("MARS: ") and said in sentence
    assert sentence.endswith("NLL 0.030, lossless 0.060, lossless at T = 0 0.030; accuracy 50.0%, lossless 75.0%.")


def test_no_finding_without_parts() -> None:
    assert finding("MARS", {"tau_gain": 0.1, "tau_gain_ci95": [0.0, 0.2]}) is None
    spec = table_spec(mean=None)
    assert all(finding("x", held.summary) is None for held in full_grid(spec).values())
