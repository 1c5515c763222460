"""A clock computed from a profile, against plain loops; what a profile refuses."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.metrics.cost import (
    Clock,
    Costs,
    Drafting,
    Linear,
    Profile,
    modelled,
    plain_clock,
    stated,
)
from results.store.errors import StoreError
from results.store.sample import Compared, Sample
from tests.helpers import synthetic_cells

HEAD = {1: 0.2, 4: 0.5, 10: 0.8}
TARGET = {1: {1: 1.0, 2: 1.1, 8: 1.7, 32: 5.0}, 4: {1: 1.6, 8: 4.4}}
PROFILE = Profile(
    title="a machine",
    sources=["made up"],
    target=TARGET,
    rest=Linear(cycle=0.02, node=0.001),
    sampled=Costs(
        drafts={"model": {1: Drafting(cycle=0.1, forwards=HEAD), 4: Drafting(cycle=0.3)}},
        accept={"lossless": Linear(cycle=0.03), "mars": Linear(cycle=0.05, node=0.002)},
    ),
)


def sample(nodes: list[int], prompt_tokens: int = 3) -> Sample:
    """A cycle for each number of draft nodes, which is that of its levels too."""
    ones = [1] * len(nodes)
    cycles = {"committed": ones, "nodes": nodes, "levels": nodes}
    return synthetic_cells.sample("a", [0, *ones], **cycles, prompt_tokens=prompt_tokens)


def forward(tokens: int, points: dict[int, float]) -> float:
    """Linear between the points, and on as between the last two."""
    grid = sorted(points)
    for low, high in pairwise(grid):
        if tokens <= high or high == grid[-1]:
            return points[low] + (points[high] - points[low]) * (tokens - low) / (high - low)
    raise AssertionError


@given(
    st.lists(st.integers(0, 80), min_size=1, max_size=20),
    st.sampled_from([1, 4]),
    st.integers(1, 500),
)
def test_seconds_of_an_answer(nodes: list[int], batch: int, prompt_tokens: int) -> None:
    """The drafter grows trees of three beams in the first profile, and has no model in that of
    batch 4."""
    clock = Clock(PROFILE, "model", "mars", False, batch, lambda levels: [1, *[3] * levels])

    def draft(tokens: int) -> float:
        return forward(tokens, HEAD) if batch == 1 else 0.0

    run = clock.run(sample(nodes, prompt_tokens=prompt_tokens))
    cycle = {1: 0.1, 4: 0.3}[batch]
    decode = sum(
        (cycle + draft(1) + draft(3) * n + forward(1 + n, TARGET[batch]) + 0.05 + 0.02) / batch
        + (0.002 + 0.001) * n
        for n in nodes
    )
    prefill = (forward(prompt_tokens, TARGET[batch]) + draft(prompt_tokens)) / batch
    assert (run.decode_s, run.prefill_s) == pytest.approx((decode, prefill))
    assert run.cycles == len(nodes)


def test_the_baseline_is_cycles_without_a_draft() -> None:
    pair = Compared(sample([4, 4]), sample([0] * 6))
    clock = Clock(PROFILE, "model", "mars", False, 1, lambda levels: [1] * levels)
    plain = plain_clock(PROFILE, False, 1)
    timed = modelled(clock, plain, pair)
    assert [run.decode_s for run in timed.runs] == pytest.approx(
        [2 * (0.1 + 4 * 0.2 + 1.4 + 0.05 + 0.02 + 4 * 0.003), 6 * (1.0 + 0.03 + 0.02)]
    )
    alone = modelled(plain, plain, Compared(pair.baseline, pair.baseline))
    assert alone.baseline is None and alone.own == timed.baseline


def test_a_rule_that_was_not_measured_is_priced_as_another() -> None:
    """On drawn tokens perhaps as a third one; captions say so; a chain of names is refused."""
    accept = {**PROFILE.sampled.accept, "tilted": "mars", "tilted drawn": "lossless"}
    sampled = PROFILE.sampled.model_copy(update={"accept": accept})
    profile = PROFILE.model_copy(update={"sampled": sampled})
    for rule, drawn, price in (
        ("tilted", False, "mars"),
        ("tilted", True, "lossless"),
        ("mars", True, "mars"),
    ):
        assert profile.accepting(rule, False, drawn) == PROFILE.sampled.accept[price]
    said = "decisions priced as another rule's: tilted as mars, tilted drawn as lossless"
    assert stated(profile).endswith(said) and "priced" not in stated(PROFILE)
    with pytest.raises(ValueError, match=r"accept\.fsd: tilted has no price here"):
        Costs.model_validate({"drafts": {}, "accept": {**accept, "fsd": "tilted"}})


@pytest.mark.parametrize(
    ("drafter", "rule", "batch", "said"),
    [
        ("medusa", "mars", 1, "drafter=medusa at batch=1: .* it has model at [1, 4]"),
        ("model", "fsd", 1, "rule=fsd: a machine does not price it; it has lossless, mars"),
        ("model", "mars", 2, "drafter=model at batch=2"),
        ("none", "lossless", 16, "batch=16: a machine has no such batch"),
    ],
)
def test_what_a_profile_does_not_price(drafter: str, rule: str, batch: int, said: str) -> None:
    with pytest.raises(StoreError, match=said.replace("[", r"\[")):
        Clock(PROFILE, drafter, rule, False, batch, lambda levels: ())


def test_greedy_decoding_has_its_own_costs() -> None:
    both = PROFILE.model_copy(update={"greedy": Costs(drafts={}, accept={})})
    assert both.costs(True) is both.greedy and both.costs(False) is both.sampled
    assert PROFILE.costs(True) is PROFILE.sampled, "where it is not priced apart"
