"""The verdict on a row: three one-sided tests, corrected for the rows asked at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from results.metrics.answer_speed import Priced, answer_speedup
from results.metrics.delta import Estimate
from results.metrics.intervals import difference_interval, holm
from results.metrics.pairwise import score_pairs
from results.metrics.verdict import Answered, Evidence, GainTests, gain_tests, nll_change, over_best, verdicts
from results.store.compared import Compared
from tests.helpers.synthetic_cells import compared, sample

ALPHA = 0.025


def evidence(errors: float) -> Evidence:
    """Of a normal test with so many standard errors."""
    from scipy.stats import norm

    return Evidence(for_p=float(norm.sf(errors)), against_p=float(norm.cdf(errors)), errors=errors)


def three_tests(best: float = 6.0, plain: float = 6.0, quality: float = 6.0, n: int = 64) -> GainTests:
    three = evidence(best), evidence(plain), evidence(quality)
    return GainTests(best=three[0], plain=three[1], quality=three[2], measure="score", n=n)


@pytest.mark.parametrize(("given", "kind"), [
    (three_tests(), "gain"), (three_tests(quality=-6), "gain at a price"),
    (three_tests(best=-6), "no gain"), (three_tests(plain=-6), "no gain"),
    (three_tests(best=-6, quality=-6), "no gain"), (three_tests(best=0.5, quality=-6), "no gain"),
    (three_tests(best=1), "undecided"), (three_tests(plain=1), "undecided"), (three_tests(quality=1), "undecided"),
    (three_tests(quality=-1), "undecided")])
def test_what_each_evidence_gives(given: GainTests, kind: str) -> None:
    assert verdicts({"row": given})["row"].kind == kind


def test_the_largest_p_value_is_corrected_over_the_rows() -> None:
    """One row at 2 standard errors is a gain alone, and none among ten; the correction is statsmodels'."""
    border = three_tests(best=1.97)
    assert verdicts({"a": border})["a"].kind == "gain"
    rows = {str(i): three_tests(best=1.97 + i / 5) for i in range(10)}
    corrected = multipletests([max(one.for_p for one in row.all) for row in rows.values()], method="holm")[1]
    assert np.allclose(corrected, holm([max(one.for_p for one in row.all) for row in rows.values()]))
    kinds = [one.kind == "gain" for one in verdicts(rows).values()]
    assert kinds == (corrected <= ALPHA).tolist() and any(kinds) and not kinds[0]


def test_how_many_prompts_would_decide() -> None:
    """A normal test at one standard error takes z² as many; the least certain test of a gain decides, and of what
    points against one the most certain."""
    assert verdicts({"a": three_tests(best=1)})["a"].needed == pytest.approx(64 * 1.96**2, abs=1)
    assert verdicts({"a": three_tests(best=1, quality=0.5)})["a"].needed == pytest.approx(64 * (1.96 / 0.5) ** 2, abs=1)
    assert verdicts({"a": three_tests(best=-1, quality=0.5)})["a"].needed == pytest.approx(64 * 1.96**2, abs=1)
    assert verdicts({"a": three_tests(best=1e-4)})["a"].text == "undecided, n > 100,000"
    assert verdicts({"a": three_tests(best=1), "b": three_tests()})["a"].needed > 64 * 2.2**2, "two rows take more"


def pairs(n: int = 400, lost: int = 0, cycle_s: float = 0.1, nll: float = 1.0,
          right: int | None = None) -> list[Compared]:
    """Answers of four tokens a cycle, of which `lost` are wrong where plain decoding is right."""
    made, right = [], n if right is None else right
    for i in range(n):
        own = sample(f"p{i:03}", range(41), committed=[4] * 10, accepted=[3] * 10, nll=41 * nll + i % 3,
                     score=float(lost <= i < right))
        base = sample(f"p{i:03}", range(41), committed=[1] * 40, accepted=[0] * 40, nll=41.0 + i % 2,
                      score=float(i < right))
        made.append(compared(own, base, decode_s=10 * cycle_s * (1 + i % 5 / 50), base_decode_s=4.0))
    return made


def row(**given) -> Answered:
    return Answered(pairs(**given))


def kind_of(own: Answered, best: Answered) -> str:
    found = over_best(own, best, 0.05)["over_best_tests"]
    return verdicts({"own": found})["own"].kind


def test_a_row_from_its_prompts() -> None:
    best = row(cycle_s=0.2)
    assert kind_of(row(), best) == "gain"
    assert kind_of(row(lost=60), best) == "gain at a price"
    assert kind_of(row(cycle_s=0.3), best) == "no gain"
    assert kind_of(row(n=40), row(n=40, cycle_s=0.2)) == "undecided", "40 equal answers do not show 5 points"
    assert over_best(Answered(pairs(), lossless=True), best, 0.05)["over_best_tests"] is None


def test_where_no_score_can_judge_the_nll_does() -> None:
    best, own = row(cycle_s=0.2, right=2), row(right=2)
    assert over_best(own, best, 0.05)["over_best_tests"].measure == "nll"
    assert kind_of(own, best) == "gain"
    assert kind_of(row(right=2, nll=1.2), best) == "gain at a price", "0.2 nats worse"
    assert nll_change(pairs(nll=1.2)).value == pytest.approx(0.2, abs=0.02)



def test_several_samples_of_a_prompt_are_one_item() -> None:
    held = [compared(sample(f"{i}/{j}", [1], score=float(j % 2), group=str(i)), sample(f"{i}/{j}", [2], score=float(i)))
            for i in range(2) for j in range(10)]
    assert score_pairs(held) == {"0": (0.0, 0.5), "1": (1.0, 0.5)}


@pytest.mark.parametrize("side", ["sample", "baseline"])
def test_where_one_prompt_has_no_nll_there_is_no_verdict(side: str) -> None:
    """The others would be a choice of prompts."""
    held, fast = pairs(n=3, right=0), Estimate(2.0, 0.01, 10.0)
    assert nll_change(held) is not None and gain_tests(fast, fast, held, 0.05) is not None
    held[1] = replace(held[1], **{side: replace(getattr(held[1], side), nll=None)})
    assert nll_change(held) is None and gain_tests(fast, fast, held, 0.05) is None


def test_the_score_is_judged_by_the_interval_that_is_shown() -> None:
    """p ≤ 2.5% exactly where the 95% interval of Δ accuracy lies above the margin."""
    fast = Estimate(2.0, 0.01, 10.0)
    for lost in range(0, 40, 3):
        held = pairs(n=200, lost=lost)
        plain, own = ([run.score for run in side] for side in zip(*((p.baseline, p.sample) for p in held), strict=True))
        low, high = difference_interval(plain, own)
        quality = gain_tests(fast, fast, held, 0.05).quality
        assert (quality.for_p <= ALPHA) == (low > -0.05) and (quality.against_p <= ALPHA) == (high < -0.05)


def test_speeds_are_shown_by_the_interval_that_is_printed() -> None:
    found = Priced.of(pairs(n=24)).estimate(answer_speedup)
    low, high = found.interval()
    assert found.p_above(low) == pytest.approx(ALPHA) and found.p_above(high) == pytest.approx(1 - ALPHA)
