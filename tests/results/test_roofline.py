"""The share of the copy bandwidth that autoregressive decoding reaches, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from results.metrics.phases import roofline
from tests.helpers.synthetic_cells import sample

READS = {"weights": 1000.0, "entry": 10.0, "rows": 1, "bandwidth": 1e6}


def answer(prompt: int, tokens: int, turns: int = 1):
    one = sample("a", list(range(tokens)), committed=[1] * (tokens - 1), accepted=[0] * (tokens - 1))
    return replace(one, prompt_tokens=prompt, turn_tokens=[tokens // turns] * turns)


def test_one_answer() -> None:
    """20 tokens behind 40: the mean context is 50, a token reads 1000 + 500 bytes, 100 times a second."""
    assert roofline([answer(40, 20)], 100.0, READS) == pytest.approx(0.15)


def test_a_batch_shares_the_weights_and_turns_have_contexts_of_their_own() -> None:
    assert roofline([answer(40, 20)], 100.0, READS | {"rows": 4}) == pytest.approx(0.075)
    assert roofline([answer(80, 40, turns=2)], 100.0, READS) == pytest.approx(0.15)


def test_long_answers_weigh_more() -> None:
    """20 tokens in a context of 50, 60 in one of 130: 110 on average."""
    assert roofline([answer(40, 20), answer(100, 60)], 100.0, READS) == pytest.approx(0.21)


@pytest.mark.parametrize(("samples", "speed", "reads"), [
    ([answer(4, 2)], None, READS), ([answer(4, 2)], 1.0, None), ([], 1.0, READS)])
def test_what_is_not_known_is_none(samples, speed, reads) -> None:
    assert roofline(samples, speed, reads) is None
