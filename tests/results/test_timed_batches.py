"""Prompts of a batch share a clock: intervals of speeds resample batches, and numbers by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.metrics.delta import clocked_interval
from results.metrics.paired import relative
from results.metrics.summary import Summary, summarise
from results.store.sample import Compared, batches
from tests.helpers.synthetic_cells import compared, sample

Batch = tuple[list[int], float, float]
"""Tokens of its prompts, seconds of the method, seconds of the baseline."""
BATCHES = st.lists(st.tuples(st.lists(st.integers(2, 40), min_size=1, max_size=4), st.floats(0.5, 4), st.floats(1, 8)),
                   min_size=2, max_size=5)


def decoded(*given: Batch, alone: bool = False) -> list[Compared]:
    """Prompts that were timed in these batches: each has an equal share of the seconds."""
    pairs = []
    for number, (tokens, seconds, base_seconds) in enumerate(given):
        for row, count in enumerate(tokens):
            cycles = {step: count // step for step in (2, 1)}
            own, base = (sample(f"{number}-{row}", range(count + 1), committed=[step] * many, accepted=[0] * many)
                         for step, many in cycles.items())
            pair = compared(own, base, decode_s=seconds / len(tokens), base_decode_s=base_seconds / len(tokens))
            batch = None if alone or len(tokens) == 1 else f"{number}-0"
            pairs.append(replace(pair, timed=replace(pair.timed, batch=batch)))
    return pairs


def of(pairs: list[Compared]) -> Summary:
    return summarise(pairs, metric="exact_match", proportion=True)


@settings(max_examples=25, deadline=None)
@given(BATCHES)
def test_speeds_resample_batches(given: list[Batch]) -> None:
    values, apart = (of(decoded(*given, alone=alone)) for alone in (False, True))
    tokens = [sum(count + 1 for count in counts) for counts, _, _ in given]
    seconds, base_seconds = [own for _, own, _ in given], [base for _, _, base in given]
    assert values.speedup == pytest.approx(apart.speedup)
    assert values.timed == apart.timed == sum(len(counts) for counts, _, _ in given)
    assert values.speedup_ci95 == pytest.approx(clocked_interval(tokens, seconds, tokens, base_seconds))
    assert values.tokens_per_s_ci95 == pytest.approx(clocked_interval(tokens, seconds))
    direct = values.answer_speedup_ci95
    rows = [(0.5 * len(counts) + base, 0.5 * len(counts) + own) for counts, own, base in given]
    assert direct == pytest.approx(clocked_interval(*zip(*rows, strict=True)))


def test_one_batch_is_one_observation() -> None:
    whole = decoded(([8, 8, 8, 40], 4.0, 8.0))
    assert of(whole).speedup_ci95 is None and of(whole).tokens_per_s == 68 / 4
    assert of(whole).answer_speedup_modelled_ci95 is None
    assert len(batches(pair.timed for pair in whole)) == 1


def test_cycles_of_a_batch_share_its_seconds() -> None:
    values = of(decoded(([8, 40], 6.0, 12.0), ([4], 1.0, 2.0)))
    assert values.token_ms == pytest.approx(1e3 * 14.0 / (8 + 40 + 4))


def test_rows_are_compared_batch_by_batch() -> None:
    one, other = decoded(([8, 40], 6.0, 12.0), ([4, 4], 2.0, 2.0)), decoded(([8, 40], 3.0, 12.0), ([4, 4], 1.0, 2.0))
    mine, theirs = of(one).by_item("tokens_per_s"), of(other).by_item("tokens_per_s")
    assert mine == {"0-0 + 0-1": (50.0, 6.0, 50.0, 12.0), "1-0 + 1-1": (10.0, 2.0, 10.0, 2.0)}
    assert relative("tokens_per_s", "over", theirs, mine)[0] == pytest.approx(2.0)
    assert set(of(one).by_item("tau")) == {pair.id for pair in one}, "what has no clock is compared by prompt"
