"""What a setting loses against plain decoding, from its samples; the settings that a workload tries."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from results.workload import Workload, agreement_losses, estimate, measure_of, score_losses, spec_of

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
    assert agreement_losses(samples, [], greedy=True) == {"a": 0, "b": 0.5}


def test_agreement_above_temperature_0_is_measured_against_lossless_samples() -> None:
    """Lossless samples agree to one half with the baseline's on average, the method's to one quarter."""
    exact = [[sample("a", [1, 2, 3, 9], [1, 2, 3, 4])], [sample("a", [1, 9, 9, 9], [1, 2, 3, 4])]]
    own = [sample("a", [9, 9, 3, 9], [1, 2, 3, 4])]
    assert agreement_losses(own, exact, greedy=False) == {"a": pytest.approx(0.25)}
    assert agreement_losses(own, [], greedy=False) is None, "without a lossless sample nothing is known"
    assert estimate(None).value is None


def test_the_score_is_the_quality_where_plain_decoding_reaches_it() -> None:
    right, wrong = sample("a", [1], [1], 1.0, 1.0), sample("b", [1], [1], 0.0, 1.0)
    assert measure_of([[right, wrong]]) == "score" and score_losses([right, wrong]) == {"a": 0, "b": 1}
    assert measure_of([[sample("a", [1], [1])]]) == "agreement", "no score"
    never = [sample("a", [1], [2], 0.0, 0.0)]
    assert measure_of([never]) == "agreement", "what plain decoding never gets right tells nothing apart"


def test_the_interval_is_over_prompts() -> None:
    found = estimate({f"p{i}": float(i < 10) for i in range(40)})
    low, high = found.interval
    assert found.value == 0.25 and 0.1 < low < 0.25 < high < 0.4
    assert estimate({"p": 0.5}).interval is None
