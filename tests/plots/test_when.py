"""The map of gains over costs: what a rule is compared with at each place, from the cost model
alone."""

from __future__ import annotations

import numpy as np
import pytest

from plots.render import data_of
from plots.when import DRAFT, VERIFY, costs, gain, machines, places_of
from results.metrics.cost import VERIFIED, answer_cost
from results.reports.grid import Outcome
from results.reports.spec import FigureSpec
from tests.helpers.synthetic_cells import made_up


def needing(passes: float, nodes: float = VERIFIED, forwards: float = 4) -> np.ndarray:
    """Costs of a method that needs `passes` of the target's forwards."""
    return answer_cost(passes, nodes, forwards, DRAFT[None], VERIFY[:, None])


def test_a_chance_in_length_is_taken_off_a_lossless_setting_alone() -> None:
    """Half of plain decoding's passes in answers a quarter longer: 0.4 in answers as long as plain
    decoding's."""
    made = made_up().summary.with_values(
        pass_ratio=2.0, length_ratio=1.25, nodes_per_cycle=VERIFIED, forwards_per_cycle=4
    )
    spec = FigureSpec.model_validate(
        {
            "name": "w",
            "title": "W",
            "kind": "figure",
            "axes": {"Rule": [{"label": "a"}, {"label": "b"}]},
            "figure": {
                "kind": "own",
                "file": "when",
                "series": "Rule",
                "values": ["pass_ratio", "length_ratio", "nodes_per_cycle", "forwards_per_cycle"],
            },
        }
    )
    data = data_of(spec, {("a",): Outcome.measured(made)})
    np.testing.assert_allclose(costs(data, {"Rule": "a"}, lossless=False), needing(0.5), rtol=1e-12)
    np.testing.assert_allclose(costs(data, {"Rule": "a"}, lossless=True), needing(0.4), rtol=1e-12)
    assert costs(data, {"Rule": "b"}, lossless=True) is None


def test_the_shipped_machines_are_marked() -> None:
    found = machines()
    assert len(found) > 2 and all(0 < draft < 1 <= verify for draft, verify in found.values())
    numbers = ", ".join(places_of(list(found.values())).values()).split(", ")
    assert sorted(numbers) == sorted(map(str, range(1, len(found) + 1)))


def test_a_rule_is_compared_with_plain_decoding_where_drafts_do_not_pay() -> None:
    own, lossless = needing(0.5), needing(0.6)
    ratio, plain = gain(own, [lossless]), lossless > 1
    assert plain.any() and not plain.all()
    np.testing.assert_allclose(ratio[~plain], 0.6 / 0.5, rtol=1e-12)
    np.testing.assert_allclose(ratio[plain], 1 / own[plain], rtol=1e-12)
    assert (ratio[plain] < 0.6 / 0.5).all() and ratio.min() < 1 < ratio.max(), (
        "faster than drafts, slower than without"
    )


def test_the_cheapest_lossless_setting_counts_at_each_place() -> None:
    short, long = needing(0.7, forwards=1), needing(0.55, forwards=7)
    ratio = gain(needing(0.5), [short, long])
    assert ratio == pytest.approx(
        np.minimum(gain(needing(0.5), [short]), gain(needing(0.5), [long]))
    )
    assert (short < long).any() and (long < short).any()
