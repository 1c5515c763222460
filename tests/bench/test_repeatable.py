"""The tokens of the two passes: which differences rounding explains, and which are errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.run.answer import answer, context, limits_of, stream_name
from bench.run.jobs import scored
from bench.run.models import NativeMethod
from bench.run.one_cell import open_cell
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
    z, number = torch.tensor([*logits, u], dtype=torch.float64).split([len(logits), 1])
    uniform = torch.rand(len(z), generator=torch.Generator().manual_seed(seed), dtype=z.dtype)
    p, other = ((x / temperature).softmax(-1) for x in (z, z + moved * (2 * uniform - 1)))
    mass = mass_between(p, int(draw(p, number[0])), int(draw(other, number[0])))
    assert mass <= moved / (2 * temperature) + 1e-12


class Passes:
    """One prompt of a cell, answered: the sample of the quality pass, and the timed answer with
    another token."""

    def __init__(self, words: str) -> None:
        common = "pair=tiny task=mini_chat n=1 decoding.max_new_tokens=8 method=ar"
        cell, method = open_cell(f"{common} {words}".split())
        self.cell, self.target, self.method = cell, method.target, NativeMethod(method)
        task = cell.load_task()
        [self.prompt] = task.prompts(1, cell.seed)
        limits = limits_of(cell, self.target, task)

        def stream(prompt, turn):
            return stream_name(cell, task, prompt, turn)

        turns = answer(self.method, [self.prompt], limits, stream, turns=1)
        sample = scored(self.prompt, turns[self.prompt.id], task, self.target)
        assert isinstance(sample, Sample)
        self.sample = sample
        read = before(self.target, self.prompt, sample, AT)
        self.probs = next_logits(self.target, read).softmax(-1)

    def with_token(self, choose: Callable[[int], int]) -> FirstDifference | None:
        ids = list(self.sample.output_ids)
        ids[AT] = choose(ids[AT])
        return first_difference(self.method, self.cell, self.prompt, ids, self.sample)

    def far(self, token: int) -> int:
        """A token that a boundary does not explain."""
        ends = 0, len(self.probs) - 1
        other = max(ends, key=lambda end: mass_between(self.probs, token, end))
        assert mass_between(self.probs, token, other) > 1e-2
        return other


@pytest.fixture(scope="module")
def sampling() -> Passes:
    return Passes("decoding.temperature=1 seed=3")


def test_plain_sampling_may_part_at_a_boundary_only(sampling):
    near = sampling.with_token(lambda token: token + 1)
    assert near is not None and (near.at, near.between) == (AT, 0.0) and near.margin > 0
    said = rf"at token {AT}, where a probability of .* lies between the two tokens"
    with pytest.raises(NotRepeatable, match=said):
        sampling.with_token(sampling.far)


def test_a_token_of_a_later_turn_follows_the_turns_before_it(sampling):
    talk = replace(
        sampling.sample, texts=["x y", "z"], turn_tokens=[3, 2], output_ids=[5, 6, 7, 8, 9]
    )
    for at, said, tokens in ((2, [], [5, 6]), (3, ["x y"], []), (4, ["x y"], [8])):
        text = before(sampling.target, sampling.prompt, talk, at)
        assert text == [*context(sampling.target, sampling.prompt, said), *tokens]


def test_greedy_decoding_may_part_at_a_near_tie_only():
    greedy = Passes("")
    assert top2_margin(greedy.probs.log()) > 1e-4
    with pytest.raises(NotRepeatable, match="the two largest logits are"):
        greedy.with_token(lambda token: token + 1)
