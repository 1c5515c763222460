"""The settings that a workload tries."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from results.reports.kinds import parse_report
from results.reports.workload import Workload

SECTION = {
    "name": "workload", "kind": "workload", "title": "Own prompts", "base": ["n=4"], "quality_loss": 0.05,
    "min_prompts": 20, "lengths": [3, 5],
    "methods": {"sps": {"label": "SpS", "overrides": ["method=sps"]},
                "mars": {"label": "MARS", "overrides": ["method=mars"], "option": "rule.theta", "symbol": "θ",
                         "values": [0.9, 0.95]}},
}


def test_settings_are_methods_by_values_by_lengths() -> None:
    spec = Workload.model_validate(SECTION).table()
    points = {point.coords[1:]: point.overrides for point in spec.points()}
    assert len(points) == 3 * 2
    assert points["MARS, θ = 0.95", "K = 5"] == ("n=4", "method=mars", "rule.theta=0.95", "draft.length=5")
    assert points["SpS", "K = 3"] == ("n=4", "method=sps", "draft.length=3")
    assert isinstance(parse_report(SECTION), Workload)
    figure = Workload.model_validate(SECTION).figure()
    assert {point.coords: point.overrides for point in figure.points()} == points


def test_values_need_their_option() -> None:
    with pytest.raises(ValidationError, match="both or neither"):
        Workload.model_validate(SECTION | {"methods": {"x": {"label": "X", "overrides": [], "values": [1.0]}}})
