"""What a setting loses against plain decoding, from its samples; the settings that a workload tries."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from results.reports.workload import (
    Workload,
    agreement_pairs,
    least_right,
    loss_of,
    measure_of,
    right_of,
    score_pairs,
    spec_of,
    speed_of,
)

SECTION = {
    "name": "workload", "kind": "workload", "title": "Own prompts", "base": ["n=4"], "quality_loss": 0.05,
    "min_prompts": 20, "lengths": [3, 5],
    "methods": {"sps": {"label": "SpS", "overrides": ["method=sps"]},
                "mars": {"label": "MARS", "overrides": ["method=mars"], "option": "rule.theta", "symbol": "θ",
                         "values": [0.9, 0.95]}},
}


def sample(name: str, ids: list[int], base: list[int], score: float | None = None,
           base_score: float | None = None) -> dict:
    return {"id": name, "output_ids": ids, "score": score, "baseline": {"output_ids": base, "score": base_score}}


def test_settings_are_methods_by_values_by_lengths() -> None:
    spec = Workload.model_validate(SECTION).table()
    points = {point.coords[1:]: point.overrides for point in spec.points()}
    assert len(points) == 3 * 2
    assert points["MARS, θ = 0.95", "K = 5"] == ("n=4", "method=mars", "rule.theta=0.95", "draft.length=5")
    assert points["SpS", "K = 3"] == ("n=4", "method=sps", "draft.length=3")
    assert spec_of(SECTION) is Workload and spec_of({"kind": "table"}) is not Workload
    figure = Workload.model_validate(SECTION).figure()
    assert {point.coords: point.overrides for point in figure.points()} == points


def test_values_need_their_option() -> None:
    with pytest.raises(ValidationError, match="both or neither"):
        Workload.model_validate(SECTION | {"methods": {"x": {"label": "X", "overrides": [], "values": [1.0]}}})


def test_agreement_at_temperature_0_is_measured_against_full_agreement() -> None:
    samples = [sample("a", [1, 2, 3, 4], [1, 2, 3, 4]), sample("b", [1, 2, 9, 9], [1, 2, 3, 4]),
               {"id": "c", "error": "x"}]
    assert agreement_pairs(samples, [], greedy=True) == {"a": (1, 1), "b": (1, 0.5)}


def test_agreement_above_temperature_0_is_measured_against_lossless_samples() -> None:
    """Lossless samples agree to one half with the baseline's on average, the method's to one quarter: half is lost."""
    exact = [[sample("a", [1, 2, 3, 9], [1, 2, 3, 4])], [sample("a", [1, 9, 9, 9], [1, 2, 3, 4])]]
    own = [sample("a", [9, 9, 3, 9], [1, 2, 3, 4])]
    pairs = agreement_pairs(own, exact, greedy=False)
    assert pairs == {"a": (0.5, 0.25)} and loss_of(pairs, 1).value == pytest.approx(0.5)
    assert agreement_pairs(own, [], greedy=False) is None, "without a lossless sample nothing is known"
    assert loss_of(None, 1).value is None


def test_the_loss_is_a_share_of_plain_decodings_score() -> None:
    """20% right with plain decoding, 16% with the method: a fifth is lost, not 4%."""
    lines = [sample(f"p{i}", [1], [1], float(i < 16), float(i < 20)) for i in range(100)]
    found = loss_of(score_pairs(lines), 1)
    assert found.value == pytest.approx(0.2) and found.interval[0] < 0.2 < found.interval[1]
    assert loss_of({"p": (0.0, 1.0)}, 1).value is None, "a share of nothing"


def test_the_score_is_the_quality_where_plain_decoding_gets_enough_right() -> None:
    lines = [sample(f"p{i}", [1], [1], 1.0, float(i < 19)) for i in range(24)]
    assert right_of([lines, lines[:3]]) == 19 and least_right(0.05) == 20 and least_right(0) == 1
    assert measure_of(19, 0.05) == "agreement", "one lost answer is more than the limit"
    assert measure_of(20, 0.05) == "score" and measure_of(19, 0.1) == "score"
    assert right_of([[sample("a", [1], [1])]]) is None and measure_of(None, 0.05) == "agreement"
    assert measure_of(0.0, 0.0) == "agreement", "what plain decoding never gets right tells nothing apart"


def grouped(count: int, samples: int) -> list[dict]:
    """Items of which the first half are answered rightly by plain decoding and by half of the method's samples."""
    return [sample(f"{i}/{j}", [1] * (5 + i), [1] * (5 + i), float(j % 2), float(i < count / 2))
            | {"group": str(i), "decode_s": 1.0 + 0.1 * (i % 3)} for i in range(count) for j in range(samples)]


def timed(lines: list[dict]) -> list[dict]:
    return [line | {"baseline": line["baseline"] | {"decode_s": 2.0}} for line in lines]


def test_several_samples_of_a_prompt_are_one() -> None:
    few, many = (timed(grouped(24, count)) for count in (2, 10))
    assert score_pairs(many) == score_pairs(few) and len(score_pairs(many)) == 24
    assert score_pairs(many)["0"] == (1.0, 0.5) and right_of([many]) == 12
    assert agreement_pairs(many, [], greedy=True) == {str(i): (1.0, 1.0) for i in range(24)}
    (speed, n), (other, n_few) = speed_of(many, 1.8, 3), speed_of(few, 1.8, 3)
    assert n == n_few == 24 and speed.value == 1.8
    assert speed.interval == pytest.approx(other.interval) and speed.alone == pytest.approx(other.alone)
    assert speed.interval[0] < speed.alone[0] < speed.alone[1] < speed.interval[1]
    assert speed_of(many[:10], 1.8, 3) == (type(speed)(1.8), 1), "one prompt has no interval"
