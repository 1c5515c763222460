"""What a message proposes in place of a name that is not known."""

from __future__ import annotations

import pytest

from bench.config.errors import LISTED, nearest, unknown_key

REPORTS = [
    f"{paper}_{kind}{number}"
    for paper in ("arc", "fsd")
    for kind in ("fig", "table")
    for number in range(1, 6)
]


def test_names_that_begin_with_the_word_come_first_and_in_order() -> None:
    near = nearest("fsd_t", REPORTS)
    assert near[:5] == [f"fsd_table{number}" for number in range(1, 6)] and len(near) <= LISTED


def test_a_slip_of_the_hand_is_named_before_longer_names() -> None:
    assert nearest("fsd_fgi4", REPORTS)[0] == "fsd_fig4"


def test_nothing_is_like_it() -> None:
    assert nearest("zzz", REPORTS) == [] and nearest("", REPORTS) == []


@pytest.mark.parametrize(
    ("key", "elsewhere", "says"),
    [
        ("theta", ["rule.theta", "rule.second.theta"], "did you mean rule.theta?"),
        ("thetta", ["rule.theta", "engine.threads"], "did you mean rule.theta?"),
        ("methd", ["drafter.depth"], "did you mean method? Allowed: method, n, pair"),
        ("output.keep", [], "output.keep: is now output.archive"),
    ],
)
def test_a_key_of_another_section(key: str, elsewhere: list[str], says: str) -> None:
    assert says in unknown_key(key, ["method", "n", "pair"], elsewhere=elsewhere)


def test_many_names_are_not_all_listed() -> None:
    names = [f"report={name}" for name in REPORTS]
    text = unknown_key("report=fsd", names, what="unknown")
    assert text.startswith("report=fsd: unknown; did you mean report=fsd_fig1? Near: fsd_fig2")
    assert sum(name in text for name in REPORTS) == LISTED and "--help` lists all" in text
    assert "Near" not in unknown_key("report=zzz", names, what="unknown")
