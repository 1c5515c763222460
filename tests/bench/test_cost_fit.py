"""Prices from timed cycles: made-up machines whose prices are known."""

from __future__ import annotations

import pytest

from bench.run.cost_fit import Size, Times, costs_of, drafting, rising, verification

PRICE = {1: 0.7, 3: 1.0, 8: 1.4}
NOTHING, Q = (False, False, False), (True, False, False)


def seconds(forwards: tuple[int, ...]) -> float:
    return 0.5 + sum(PRICE[tokens] for tokens in forwards)


def test_each_number_of_tokens_has_its_price() -> None:
    """A forward over three tokens is dearer than a straight line from one to eight says."""
    shapes = [(1,), (1, 1, 1), (1,) * 7, (1, 3, 3, 3), (1, *[3] * 6), (1, *[8] * 5)]
    found = drafting([(shape, seconds(shape)) for shape in shapes])
    assert found.cycle == pytest.approx(0.5) and found.forwards == pytest.approx(PRICE)
    assert found.seconds((1, *[3] * 4)) == pytest.approx(seconds((1, *[3] * 4)))


@pytest.mark.parametrize("shapes", [[(1, 3, 8)], [(1,)], [(1, 3, 8), (1, 3)]])
def test_few_shapes_are_priced_as_a_whole(shapes: list[tuple[int, ...]]) -> None:
    found = drafting([(shape, seconds(shape)) for shape in shapes])
    assert [found.seconds(shape) for shape in shapes] == pytest.approx([seconds(shape) for shape in shapes], rel=0.03)
    assert len(found.forwards) <= 2


def test_a_drafter_without_a_model() -> None:
    found = drafting([((), 0.2), ((), 0.2)])
    assert found.cycle == pytest.approx(0.2) and found.forwards == {}


def test_what_a_rule_asks_of_drafts_is_its_own_price() -> None:
    """A rule whose drafts carry their distribution pays for that; the draft's own price is that of the lossless rule,
    and noise of a rule that asks for nothing else does not count."""
    chain, tree = (1, 1, 1), (1, 3, 3, 3)
    cycles = {Size("none", "lossless", 0, (), NOTHING): {"draft": 0.0, "verify": 5.0, "accept": 0.3, "rest": 0.1}}
    for nodes, forwards in ((3, chain), (15, tree)):
        for rule, carried, draft in (("lossless", NOTHING, 0.0), ("mars", NOTHING, 0.0), ("fsd", Q, 0.4)):
            cycles[Size("eagle3", rule, nodes, forwards, carried)] = {
                "draft": seconds(forwards) + draft, "verify": 7.0, "accept": 0.3 + 0.01 * nodes, "rest": 0.1}
    times = Times(cycles, {"none": [(10, 2.0), (20, 3.0)], "eagle3": [(10, 0.2), (20, 0.4)]})
    found = costs_of({1: times})
    accept = {rule: (price.cycle, price.node) for rule, price in found.accept.items()}
    assert accept["mars"] == pytest.approx((0.3, 0.01)) and accept["fsd"] == pytest.approx((0.7, 0.01))
    price = found.drafts["eagle3"][1]
    assert price.seconds(tree) == pytest.approx(seconds(tree)) and price.reading(15) == pytest.approx(0.3)
    assert verification(times.lossless) == {1: 5.0, 4: 7.0, 16: 7.0}


def test_noise_does_not_fall() -> None:
    assert rising({1: 1.0, 2: 3.0, 3: 2.0}) == {1: 1.0, 2: 2.5, 3: 2.5}
