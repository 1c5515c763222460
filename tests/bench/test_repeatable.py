"""The tokens of the two passes: which differences rounding explains, and which are errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.commands.one_cell import open_cell
from bench.run.answer import answer, context, limits_of, stream_name
from bench.run.jobs import scored
from bench.run.models import NativeMethod
from bench.run.timed import NotRepeatable, before, first_difference
from methods.engine.margin import mass_between, next_logits, top2_margin
from methods.sampling import draw
from results.store.sample import FirstDifference, Sample

LOGITS = st.lists(st.floats(-12, 12), min_size=2, max_size=40)
AT = 4


@given(
    LOGITS,
    st.floats(0, 1, exclude_max=True),
    st.floats(0.3, 2),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-6, 1e-3, 0.3, 2.0]),
)
def test_rounding_moves_a_draw_over_little_mass(
    logits: list[float], u: float, temperature: float, seed: int, moved: float
) -> None:
    z = torch.tensor(logits, dtype=torch.float64)
    noise = (
        torch.rand(len(z), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
        - 1
    )
    p, other = ((one / temperature).softmax(-1) for one in (z, z + moved * noise))
    number = torch.tensor(u, dtype=torch.float64)
    mass = mass_between(p, int(draw(p, number)), int(draw(other, number)))
    assert mass <= moved / (2 * temperature) + 1e-12


class Passes:
    """One prompt of a cell, answered: the sample of the quality pass, and the timed answer with
    another token."""

    def __init__(self, overrides: list[str]) -> None:
        cell, self.method = open_cell(
            ["pair=tiny", "task=mini_chat", "n=1", "decoding.max_new_tokens=8", *overrides]
        )
        self.cell, self.target, task = cell, self.method.target, cell.load_task()
        [prompt] = task.prompts(1, cell.seed)
        self.prompt = prompt
        turns = answer(
            NativeMethod(self.method),
            [prompt],
            limits_of(cell, self.target, task),
            lambda prompt, turn: stream_name(cell, task, prompt, turn),
            turns=1,
        )
        sample = scored(prompt, turns[prompt.id], task, self.target)
        assert isinstance(sample, Sample)
        self.sample = sample
        self.probs = next_logits(self.target, before(self.target, prompt, sample, AT)).softmax(-1)

    def with_token(self, choose: Callable[[int], int]) -> FirstDifference | None:
        own = self.sample.output_ids
        ids = [*own[:AT], choose(own[AT]), *own[AT + 1 :]]
        return first_difference(NativeMethod(self.method), self.cell, self.prompt, ids, self.sample)

    def far(self, own: int) -> int:
        """A token that a boundary does not explain."""
        last = len(self.probs) - 1
        other = max((0, last), key=lambda token: mass_between(self.probs, own, token))
        assert mass_between(self.probs, own, other) > 1e-2
        return other


@pytest.fixture(scope="module")
def sampling() -> Passes:
    return Passes(["method=ar", "decoding.temperature=1", "seed=3"])


def test_plain_sampling_may_part_at_a_boundary_only(sampling: Passes) -> None:
    found = sampling.with_token(lambda own: own + 1)
    assert found is not None and (found.at, found.between) == (AT, 0.0) and found.margin > 0
    with pytest.raises(
        NotRepeatable,
        match=rf"at token {AT}, where a probability of .* lies between the two tokens",
    ):
        sampling.with_token(sampling.far)


def test_a_token_of_a_later_turn_follows_the_turns_before_it(sampling: Passes) -> None:
    talk = replace(
        sampling.sample, texts=["x y", "z"], turn_tokens=[3, 2], output_ids=[5, 6, 7, 8, 9]
    )
    for at, said, own in ((2, [], [5, 6]), (3, ["x y"], []), (4, ["x y"], [8])):
        found = before(sampling.target, sampling.prompt, talk, at)
        assert found == [*context(sampling.target, sampling.prompt, said), *own]


def test_greedy_decoding_may_part_at_a_near_tie_only() -> None:
    greedy = Passes(["method=ar"])
    assert top2_margin(greedy.probs.log()) > 1e-4
    with pytest.raises(NotRepeatable, match="the two largest logits are"):
        greedy.with_token(lambda own: own + 1)
