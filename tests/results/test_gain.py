"""The words of a verdict: one-sided tests on the ratio of speeds at equal distortion, corrected
for one number of settings."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
from statsmodels.stats.multitest import multipletests

from results.metrics.delta import Estimate
from results.metrics.summary import scores_by_item
from results.metrics.verdict import ALPHA, FAMILY, LEVEL, Judged
from tests.helpers.synthetic_cells import compared, sample


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
