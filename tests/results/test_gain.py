"""The words of a verdict: one-sided tests on the ratio of speeds at equal distortion, corrected
over the rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from results.metrics.delta import Estimate
from results.metrics.intervals import holm
from results.metrics.summary import scores_by_item
from results.metrics.verdict import ALPHA, Judged, verdicts
from tests.helpers.synthetic_cells import compared, sample


def judged(ratio: float, error: float = 0.01, beyond: float = 0.0, n: int = 64) -> Judged:
    return Judged(speed=Estimate(ratio, error, 1e6), beyond=beyond, n=n)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (judged(1.1), "gain"),
        (judged(1.0166), "gain"),
        (judged(1.016), "no gain above 5%"),
        (judged(1.04), "gain"),
        (judged(0.9), "no gain above 5%"),
        (judged(1.03, 0.02), "undecided"),
        (judged(1.1, 0.1), "undecided"),
        (judged(2.0, beyond=0.96), "beyond greedy"),
        (judged(2.0, beyond=0.94), "gain"),
    ],
)
def test_what_each_evidence_gives(given: Judged, kind: str) -> None:
    assert verdicts({"row": given})["row"].kind == kind


def test_p_values_are_corrected_over_the_rows_that_are_judged() -> None:
    """One row at 1.7 standard errors is a gain alone, and none among ten; the correction is
    statsmodels'."""
    border = judged(math.exp(0.017))
    assert verdicts({"a": border})["a"].kind == "gain"
    rows = {str(i): judged(math.exp(0.017 + i / 500)) for i in range(10)}
    p_values = [row.speed.p_above(1.0) for row in rows.values()]
    corrected = multipletests(p_values, method="holm")[1]
    assert np.allclose(corrected, holm(p_values))
    kinds = [one.kind == "gain" for one in verdicts(rows).values()]
    assert kinds == (corrected <= ALPHA).tolist() and any(kinds) and not kinds[0]
    others = {str(i): judged(3.0, beyond=1.0) for i in range(9)}
    assert verdicts(others | {"a": border})["a"].kind == "gain", (
        "rows that are not tested correct nothing"
    )


def test_how_many_prompts_would_decide() -> None:
    """The error shrinks with the root of their number: of a gain and of its opposite the nearer one
    decides."""
    near, room = judged(math.exp(0.01), 0.05), math.log(1.05) - 0.01
    assert verdicts({"a": near})["a"].needed == pytest.approx(
        64 * (1.645 * 0.05 / room) ** 2, rel=0.01
    )
    far = judged(1.5, 0.4)
    assert verdicts({"a": far})["a"].needed == pytest.approx(
        64 * (1.645 * 0.4 / math.log(1.5)) ** 2, rel=0.01
    )
    assert verdicts({"a": far, "b": judged(2.0)})["a"].needed > verdicts({"a": far})["a"].needed, (
        "two rows take more"
    )
    assert verdicts({"a": judged(1.0247, 5.0)})["a"].text == "undecided, n > 100,000"


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
