"""Where the time went."""

import pytest

from results.metrics.catalog import METRICS
from results.metrics.phases import NAMES, time_shares

PHASES = {"draft": 0.002, "verify": 0.005, "accept": 0.002, "commit": 0.001, "head": 0.0005, "cycle": 0.0101}


def test_shares_are_of_all_time_and_add_up():
    found = time_shares(1.0, 9.0, PHASES)
    shares = [found[name] for name in ("prefill_share", "draft_time_share", "verify_share", "accept_share")]
    assert shares == pytest.approx([0.1, 0.18, 0.45, 0.27]) and sum(shares) == pytest.approx(1)
    assert [found[name] for name in NAMES[4:]] == pytest.approx([10, 7, 2.5, 2.5 / 7])
    assert set(found) == set(NAMES) <= set(METRICS)


def test_what_the_pass_could_not_tell_is_unknown():
    assert set(time_shares(1.0, 9.0, None).values()) == {None} == set(time_shares(0.0, 0.0, PHASES).values())
    found = time_shares(1.0, 9.0, {name: x for name, x in PHASES.items() if name != "head"})
    assert found["head_ms"] is None and found["head_share"] is None and found["forward_ms"] == pytest.approx(7)
