"""What a setting loses against plain decoding and what it gains in speed, from its samples."""

from __future__ import annotations

from typing import Any

import pytest

from results.metrics.quality_loss import (
    agreement_pairs,
    baseline_right,
    fewest_right,
    quality_measure,
    relative_loss,
    score_pairs,
    speedup_estimate,
)
from results.store.compared import Compared
from tests.helpers import synthetic_cells


def sample(name: str, ids: list[int], base: list[int], score: float | None = None, base_score: float | None = None,
           decode_s: float = 1.0, **fields: Any) -> Compared:
    own = synthetic_cells.sample(name, ids, score=score, **fields)
    return synthetic_cells.compared(own, synthetic_cells.sample(name, base, score=base_score), decode_s=decode_s)


def test_agreement_at_temperature_0_is_measured_against_full_agreement() -> None:
    samples = [sample("a", [1, 2, 3, 4], [1, 2, 3, 4]), sample("b", [1, 2, 9, 9], [1, 2, 3, 4]),
               synthetic_cells.compared(synthetic_cells.sample("c"))]
    assert agreement_pairs(samples, [], greedy=True) == {"a": (1, 1), "b": (1, 0.5)}


def test_agreement_above_temperature_0_is_measured_against_lossless_samples() -> None:
    """Lossless samples agree to one half with the baseline's on average, the method's to one quarter: half is lost."""
    exact = [[sample("a", [1, 2, 3, 9], [1, 2, 3, 4])], [sample("a", [1, 9, 9, 9], [1, 2, 3, 4])]]
    own = [sample("a", [9, 9, 3, 9], [1, 2, 3, 4])]
    pairs = agreement_pairs(own, exact, greedy=False)
    assert pairs == {"a": (0.5, 0.25)} and relative_loss(pairs, 1).value == pytest.approx(0.5)
    assert agreement_pairs(own, [], greedy=False) is None, "without a lossless sample nothing is known"
    assert relative_loss(None, 1).value is None


def test_the_loss_is_a_share_of_plain_decodings_score() -> None:
    """20% right with plain decoding, 16% with the method: a fifth is lost, not 4%."""
    lines = [sample(f"p{i}", [1], [1], float(i < 16), float(i < 20)) for i in range(100)]
    found = relative_loss(score_pairs(lines), 1)
    assert found.value == pytest.approx(0.2) and found.interval[0] < 0.2 < found.interval[1]
    assert relative_loss({"p": (0.0, 1.0)}, 1).value is None, "a share of nothing"


def test_the_score_is_the_quality_where_plain_decoding_gets_enough_right() -> None:
    lines = [sample(f"p{i}", [1], [1], 1.0, float(i < 19)) for i in range(24)]
    assert baseline_right([lines, lines[:3]]) == 19 and fewest_right(0.05) == 20 and fewest_right(0) == 1
    assert quality_measure(19, 0.05) == "agreement", "one lost answer is more than the limit"
    assert quality_measure(20, 0.05) == "score" and quality_measure(19, 0.1) == "score"
    assert baseline_right([[sample("a", [1], [1])]]) is None and quality_measure(None, 0.05) == "agreement"
    assert quality_measure(0.0, 0.0) == "agreement", "what plain decoding never gets right tells nothing apart"


def grouped(count: int, samples: int) -> list[Compared]:
    """Items of which the first half are answered rightly by plain decoding and by half of the method's samples."""
    return [sample(f"{i}/{j}", [1] * (5 + i), [1] * (5 + i), float(j % 2), float(i < count / 2), group=str(i),
                   decode_s=1.0 + 0.1 * (i % 3))
            for i in range(count) for j in range(samples)]


def test_several_samples_of_a_prompt_are_one() -> None:
    few, many = (grouped(24, count) for count in (2, 10))
    assert score_pairs(many) == score_pairs(few) and len(score_pairs(many)) == 24
    assert score_pairs(many)["0"] == (1.0, 0.5) and baseline_right([many]) == 12
    assert agreement_pairs(many, [], greedy=True) == {str(i): (1.0, 1.0) for i in range(24)}
    (speed, n), (other, n_few) = speedup_estimate(many, 1.8, 3), speedup_estimate(few, 1.8, 3)
    assert n == n_few == 24 and speed.value == 1.8
    assert speed.interval == pytest.approx(other.interval) and speed.alone == pytest.approx(other.alone)
    assert speed.interval[0] < speed.alone[0] < speed.alone[1] < speed.interval[1]
    assert speedup_estimate(many[:10], 1.8, 3) == (type(speed)(1.8), 1), "one prompt has no interval"
