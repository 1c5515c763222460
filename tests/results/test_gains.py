"""What a rule gains over the lossless one, in parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from results.metrics.summary import Summary
from results.metrics.tau_gain import (
    HOTTER,
    MATCHED,
    PARTS,
    TEMPERATURES,
    UNDEFINED,
    Counts,
    Runs,
    curve_of,
    findings,
    gain,
    joined,
    monotone,
    split,
)
from results.store.sample import Sample
from tests.helpers.synthetic_cells import made_up, sample

N = 40


def answers(cycles: list[list[int]], nll: float = 0.1, score: float = 1.0) -> dict[str, Sample]:
    """One sample a prompt, of these committed tokens, `nll` nats each."""
    return {
        f"p{i}": sample(
            f"p{i}", [0] * (1 + sum(own)), committed=own, nll=nll * (1 + sum(own)), score=score
        )
        for i, own in enumerate(cycles)
    }


def counts(
    tau: float, nll: float, score: float = 0.5, n: int = N, spread: float = 0.0, seed: int = 0
) -> Counts:
    """n prompts of ten cycles and 40 tokens; `spread`: of τ and NLL from prompt to prompt,
    relative."""
    noise = 1 + spread * np.random.default_rng(seed).normal(size=(2, n))
    return Counts(
        10 * tau * noise[0],
        np.full(n, 10.0),
        40 * nll * noise[1],
        np.full(n, 40.0),
        np.full(n, score),
    )


def runs(
    tau: float,
    nll: float,
    exact: tuple[float, float] | None = None,
    score: float = 0.5,
    **more: float,
) -> Runs:
    """A rule beside a curve of τ = 4 − T and NLL = T nats, with scores that fall by 0.2 T."""
    own = counts(tau, nll, score, **more)
    lossless = {t: counts(4 - t, 0.0) for t in TEMPERATURES}
    plain = {t: counts(1.0, t, 0.8 - 0.2 * t) for t in TEMPERATURES}
    return Runs(own, own if exact is None else counts(*exact, score), lossless, plain)


@given(st.integers(2, 9), st.integers(0, 10_000), st.booleans())
def test_the_monotone_curve_is_that_of_scipy(size: int, seed: int, rising: bool) -> None:
    rng = np.random.default_rng(seed)
    given_values, weights = rng.normal(size=(3, size)), rng.uniform(0.1, 3, size=(3, size))
    found = monotone(given_values, weights, np.full((3, 1), rising))
    for own, row, weight in zip(found, given_values, weights, strict=True):
        assert own == pytest.approx(isotonic_regression(row, weights=weight, increasing=rising).x)


def test_a_temperature_is_found_between_points_and_in_the_middle_of_a_level_stretch() -> None:
    level = {0.0: 0.1, 0.5: 0.2, 1.0: 0.2, 1.5: 0.6}
    curve = curve_of(
        {t: counts(4 - t, 0.0) for t in level},
        {t: counts(1.0, nll) for t, nll in level.items()},
        np.ones((6, N)),
    )
    found, left = curve.matched(curve.nll, np.array([0.1, 0.15, 0.2, 0.4, 0.09, 0.61]))
    assert (
        found == pytest.approx([0.0, 0.25, 0.75, 1.25, 0.0, 1.5])
        and left.tolist() == [False] * 4 + [True] * 2
    )
    assert curve.at(curve.tau, found) == pytest.approx(4 - found)


@settings(deadline=None, max_examples=25)
@given(
    st.floats(1, 8),
    st.floats(0.01, 1.4),
    st.floats(1, 8),
    st.floats(0.01, 1.4),
    st.sampled_from((0.4, 1.0)),
)
def test_the_parts_add_up(
    tau: float, nll: float, exact: float, exact_nll: float, asked: float
) -> None:
    found = split(runs(tau, nll, (exact, exact_nll)), asked, resamples=50)
    assert found["tau_gain"] == pytest.approx(tau - (4 - asked), abs=1e-9)
    assert found["tau_gain"] == pytest.approx(sum(found[part] for part in PARTS), abs=1e-9)
    assert found["tau_gain_q"] == pytest.approx(tau - exact, abs=1e-9)
    assert found["tau_gain_greedier"] == pytest.approx(max(0.0, asked - exact_nll), abs=1e-9), (
        "τ falls by 1 per 1 of T"
    )
    assert found["tau_gain_match"] == (HOTTER if exact_nll > asked + 1e-12 else MATCHED)


@pytest.mark.parametrize("other", [0.0, 0.3, 0.55, 0.92, 1.0])
def test_lossless_decoding_at_another_temperature_is_greedier_and_no_more(other: float) -> None:
    """The positive control: presented as a rule at T = 1, all of its gain is greedier decoding."""
    found = split(runs(4 - other, other), 1.0)
    assert (
        found["tau_gain_greedier"] == pytest.approx(1 - other) == pytest.approx(found["tau_gain"])
    )
    assert (
        found["tau_gain_relaxed"]
        == pytest.approx(0, abs=1e-9)
        == pytest.approx(found["tau_gain_q"], abs=1e-9)
    )
    assert found["tau_gain_temperature"] == pytest.approx(other)


def test_q_mode_draft_alone_has_all_of_it_in_the_q_part() -> None:
    point = runs(3.7, 0.8)
    found = split(point._replace(exact=point.lossless[1.0], is_strict=True), 1.0)
    assert [found[part] for part in PARTS] == pytest.approx([0, 0, 0.7]) and found[
        "tau_gain_match"
    ] == MATCHED
    assert found["tau_gain_q_ci95"] == found["tau_gain_ci95"] and found[
        "tau_gain_relaxed_ci95"
    ] == (0.0, 0.0)


def test_a_rule_hotter_than_asked_is_not_greedier() -> None:
    found = split(runs(3.4, 1.2), 1.0)
    assert found["tau_gain_match"] == HOTTER
    assert (found["tau_gain_greedier"], found["tau_gain_relaxed"]) == pytest.approx((0.0, 0.4))
    assert "tau_gain_match" in split(runs(3.4, 9.9), 1.0), (
        "above the whole curve is hotter too, and still defined"
    )


def test_a_rule_likelier_than_greedy_decoding_has_no_split() -> None:
    point = runs(3.4, -0.05)
    found = split(point, 1.0)
    assert found["tau_gain_match"] == UNDEFINED and found["tau_gain"] == pytest.approx(0.4)
    assert not {"tau_gain_relaxed", "tau_gain_greedier", "tau_gain_temperature"} & set(found)
    rarely = split(point._replace(exact=counts(3.4, 0.05, spread=0.5)), 1.0)
    assert rarely["tau_gain_match"] == MATCHED, "a few resamples may leave the curve"


def test_the_match_on_the_score_needs_scores_that_differ() -> None:
    """Plain decoding scores 0.8 at T = 0 and 0.6 at T = 1; a rule with 0.7 is matched at T =
    0.5."""
    found = split(runs(3.6, 1.0, score=0.7), 1.0)
    assert found["tau_gain_relaxed_by_score"] == pytest.approx(0.1) and found[
        "tau_gain_greedier"
    ] == pytest.approx(0)
    worse = split(runs(3.6, 1.0, score=0.5), 1.0)
    assert worse["tau_gain_relaxed_by_score"] == pytest.approx(0.6), (
        "a lower score than asked for is not greedier"
    )
    alike = runs(3.6, 1.0, score=0.7)
    alike = alike._replace(plain={t: counts(1.0, t, 0.6) for t in TEMPERATURES})
    assert "tau_gain_relaxed_by_score" not in split(alike, 1.0)


def test_each_prompt_of_a_row_lies_on_the_curve_of_its_own_setting() -> None:
    short, long = runs(3.5, 0.5), runs(5.5, 0.5)
    long = long._replace(lossless={t: counts(6 - t, 0.0) for t in TEMPERATURES})
    found = split(joined([short, long]), 1.0)
    assert found["tau_gain_greedier"] == pytest.approx(0.5) and found[
        "tau_gain_relaxed"
    ] == pytest.approx(0, abs=1e-9)


def test_the_match_is_part_of_the_interval() -> None:
    """A rule whose NLL varies from prompt to prompt has an uncertain greedier part, though every τ
    is certain."""
    found = split(runs(3.4, 0.5, spread=0.0)._replace(exact=counts(3.4, 0.5, spread=0.4)), 1.0)
    low, high = found["tau_gain_greedier_ci95"]
    assert low < 0.5 < high and high - low > 0.05


def test_the_gain_alone_is_paired() -> None:
    """Prompts differ a lot, but the rule gains exactly 1 on each: its interval has no width, those
    of both τ have."""
    lossless, own = (answers([[length + more] * 10 for length in (1, 3, 5, 7)]) for more in (0, 1))
    found = gain(own, lossless)
    assert found == {"tau_gain": pytest.approx(1.0), "tau_gain_ci95": pytest.approx((1.0, 1.0))}
    assert gain(answers([[4], [2]]), answers([[2], [2], [9]]))["tau_gain"] == pytest.approx(1.0), (
        "common prompts"
    )
    assert gain(answers([[]]), answers([[2]])) == {}


def summary(
    relaxed: float, greedier: float, q: float, width: float, match: str = MATCHED
) -> Summary:
    gained = relaxed + greedier + q
    return made_up(n=12, right=6).summary.with_values(
        tau_gain=gained,
        tau_gain_ci95=(gained - width, gained + width),
        tau_gain_relaxed=relaxed,
        tau_gain_greedier=greedier,
        tau_gain_q=q,
        lossless_accuracy=0.75,
        tau_gain_match=match,
        tau_gain_temperature=0.4,
    )


def test_findings_state_the_parts_and_the_match() -> None:
    undefined = summary(0.1, 0.2, 0.1, 0.1, UNDEFINED).with_values(
        tau_gain_relaxed=None, tau_gain_greedier=None
    )
    said = findings(
        [
            ("EAGLE-3", made_up().summary),
            ("A", summary(0.1, 0.2, 0.0, 0.1)),
            ("B", summary(0.1, 0.0, 0.0, 0.2)),
            ("C", summary(-1.5, 0.0, 0.5, 0.5, HOTTER)),
            ("D", summary(0.0, -0.1, 0.05, 0.2)),
            ("E", undefined),
        ]
    )
    assert said == [
        "A gains τ over the lossless rule, +0.30 [+0.20, +0.40]: relaxation +0.10, greedier "
        "decoding +0.20, q_mode: draft +0.00; its NLL is that of lossless decoding at T = 0.40; "
        "accuracy 50.0%, lossless 75.0%.",
        "C loses τ over the lossless rule, −1.00 [−1.50, −0.50]: relaxation −1.50, greedier "
        "decoding +0.00, q_mode: draft +0.50; its text is less likely than plain decoding's at "
        "the same temperature; accuracy 50.0%, lossless 75.0%.",
        "E gains τ over the lossless rule, +0.40 [+0.30, +0.50]: q_mode: draft +0.10; the rest "
        "is not split, its NLL is not on the curve of lossless decoding; accuracy 50.0%, "
        "lossless 75.0%.",
        "12 prompts show no difference in τ from the lossless rule for B +0.10 [−0.10, +0.30]; D "
        "−0.05 [−0.25, +0.15].",
    ]
