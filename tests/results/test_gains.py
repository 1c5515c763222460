"""What a rule gains over the lossless one, in parts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.metrics.tau_gain import PARTS, RUNS, findings, gains
from results.store.sample import Sample
from results.store.summary import Summary
from tests.helpers.synthetic_cells import full_grid, made_up, sample, table_spec


def run(cycles: list[list[int]], nll: float = 0.1) -> list[Sample]:
    """One sample a prompt, of these committed tokens, `nll` nats each."""
    return [sample(f"p{i}", [0] * (1 + sum(own)), committed=own, nll=nll * (1 + sum(own)))
            for i, own in enumerate(cycles)]


def tau(samples: list[Sample]) -> float:
    return sum(sum(s.committed) for s in samples) / sum(len(s.committed) for s in samples)


one_run = st.tuples(st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=6), min_size=4, max_size=4),
                    st.floats(0.01, 2.0))


@settings(deadline=None)
@given(st.fixed_dictionaries({name: one_run for name in RUNS}))
def test_the_parts_add_up(drawn: dict) -> None:
    runs = {name: run(*given) for name, given in drawn.items()}
    found = gains(runs)
    room = tau(runs["lossless_greedy"]) - tau(runs["lossless"])
    assert found["tau_gain"] == pytest.approx(tau(runs["own"]) - tau(runs["lossless"]))
    assert found["tau_gain"] == pytest.approx(sum(found[part] for part in PARTS))
    assert found["tau_gain_q"] == pytest.approx(tau(runs["own"]) - tau(runs["exact"]))
    assert min(0, room) - 1e-9 <= found["tau_gain_greedier"] <= max(0, room) + 1e-9
    assert all(found[f"{part}_ci95"][0] <= found[f"{part}_ci95"][1] for part in ("tau_gain", *PARTS))


@pytest.mark.parametrize(("nll", "share"), [(0.30, 0.0), (0.40, 0.0), (0.25, 0.5), (0.20, 1.0), (0.10, 1.0)])
def test_greediness_is_judged_by_the_likelihood(nll: float, share: float) -> None:
    """Going to temperature 0 gains 2; a rule gains 1 that has gone none, half or all of the way there."""
    point = {"lossless": run([[3] * 4] * 5, 0.30), "lossless_greedy": run([[5] * 4] * 5, 0.20)}
    own = run([[4] * 4] * 5, nll)
    found = gains({**point, "own": own, "exact": own})
    assert [found[part] for part in PARTS] == pytest.approx([1 - 2 * share, 2 * share, 0])


def test_where_temperature_0_is_no_likelier_nothing_is_called_greedy() -> None:
    own = run([[4] * 4] * 5, 0.1)
    point = {"lossless": run([[3] * 4] * 5, 0.2), "lossless_greedy": run([[5] * 4] * 5, 0.2)}
    found = gains({**point, "own": own, "exact": own})
    assert found["tau_gain_greedier"] == 0 and found["tau_gain_relaxed"] == pytest.approx(1)


def test_the_interval_is_paired() -> None:
    """Prompts differ a lot, but the rule gains exactly 1 on each: its interval has no width, those of both τ have."""
    lossless, own = (run([[length + more] * 10 for length in (1, 3, 5, 7)]) for more in (0, 1))
    found = gains({"own": own, "lossless": lossless})
    assert found["tau_gain"] == pytest.approx(1.0) and found["tau_gain_ci95"] == pytest.approx([1.0, 1.0])
    assert set(found) == {"tau_gain", "tau_gain_ci95"}, "no parts without their cells"


def test_prompts_without_a_cycle_in_every_run_are_left_out() -> None:
    own, lossless = run([[4], [2], [9]]), run([[2], [2], []])
    assert gains({"own": own, "lossless": lossless})["tau_gain"] == pytest.approx(1.0)
    assert gains({"own": own[2:], "lossless": lossless}) == {}


def summary(relaxed: float, greedier: float, q: float, width: float) -> Summary:
    gain = relaxed + greedier + q
    return made_up(n=12, right=6).summary.with_values(
        tau_gain=gain, tau_gain_ci95=(gain - width, gain + width), tau_gain_relaxed=relaxed,
        tau_gain_greedier=greedier, tau_gain_q=q, lossless_accuracy=0.75)


def test_findings_name_the_largest_part_only_where_there_is_a_gain() -> None:
    said = findings([
        ("EAGLE-3", made_up().summary), ("A", summary(0.1, 0.2, 0.0, 0.1)), ("B", summary(0.1, 0.0, 0.0, 0.2)),
        ("C", summary(-1.5, 0.0, 0.5, 0.5)), ("D", summary(0.0, -0.1, 0.05, 0.2)),
    ])
    assert said == [
        "A gains τ over the lossless rule, +0.30 [+0.20, +0.40], most of it greedier decoding (relaxation +0.10, "
        "greedier decoding +0.20, q_mode: draft +0.00); accuracy 50.0%, lossless 75.0%.",
        "C loses τ over the lossless rule, −1.00 [−1.50, −0.50] (relaxation −1.50, greedier decoding +0.00, "
        "q_mode: draft +0.50); accuracy 50.0%, lossless 75.0%.",
        "12 prompts show no difference in τ from the lossless rule for B +0.10 [−0.10, +0.30]; D −0.05 [−0.25, +0.15].",
    ]


def test_no_finding_without_parts() -> None:
    points = [("x", held.summary) for held in full_grid(table_spec(mean=None)).values()]
    gained = made_up().summary.with_values(tau_gain=0.1, tau_gain_ci95=(0.05, 0.2))
    assert findings([*points, ("y", gained)]) == []
