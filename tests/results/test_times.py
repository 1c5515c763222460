"""Where the time went, and what batches make of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.metrics.catalog import METRICS
from results.metrics.paired import relative
from results.metrics.phases import NAMES, time_shares
from results.store.sample import Compared, TimedRun
from tests.helpers.synthetic_cells import compared, sample, summed

Batch = tuple[list[int], float, float]
"""Tokens of its prompts, seconds of the method, seconds of the baseline."""
BATCHES = st.lists(
    st.tuples(
        st.lists(st.integers(2, 40), min_size=1, max_size=4), st.floats(0.5, 4), st.floats(1, 8)
    ),
    min_size=3,
    max_size=5,
)


def decoded(*batches: Batch) -> list[Compared]:
    """Prompts that were timed in these batches: each has an equal share of the seconds."""
    pairs = []
    for number, (tokens, seconds, base_seconds) in enumerate(batches):
        for row, count in enumerate(tokens):
            own, base = (
                sample(f"{number}-{row}", range(count + 1), committed=[step] * (count // step))
                for step in (2, 1)
            )
            pair = compared(
                own, base, decode_s=seconds / len(tokens), base_decode_s=base_seconds / len(tokens)
            )
            batch = f"{number}-0" if len(tokens) > 1 else None
            pairs.append(replace(pair, timed=replace(pair.timed, batch=batch)))
    return pairs


@settings(max_examples=25)
@given(BATCHES)
def test_a_batch_is_as_one_prompt_of_all_its_tokens_and_seconds(rows: list[Batch]) -> None:
    """Each prompt has a first token and a prefill of half a second beside what its batch says."""
    merged = []
    for tokens, own, base in rows:
        more = len(tokens) - 1
        merged.append(([sum(tokens) + more], own + more / 2, base + more / 2))
    whole, merged = summed(decoded(*rows)), summed(decoded(*merged))
    assert (whole.timed, merged.timed) == (sum(len(tokens) for tokens, _, _ in rows), len(rows))
    for name in ("speedup", "tokens_per_s", "answer_speedup"):
        assert whole.value(name) == pytest.approx(merged.value(name))
        assert whole.interval(name) == pytest.approx(merged.interval(name))


def test_one_batch_is_one_observation() -> None:
    whole = summed(decoded(([8, 8, 8, 40], 4.0, 8.0)))
    assert whole.speedup_ci95 is whole.answer_speedup_modelled_ci95 is None
    assert whole.tokens_per_s == 68 / (4 + 4 * 0.5)


def test_rows_are_compared_batch_by_batch() -> None:
    one = summed(decoded(([8, 40], 6.0, 12.0), ([4, 4], 2.0, 2.0)))
    other = summed(decoded(([8, 40], 3.0, 12.0), ([4, 4], 1.0, 2.0)))
    mine, theirs = (each.by_item("tokens_per_s") for each in (one, other))
    assert mine == {"0-0 + 0-1": (50.0, 7.0, 50.0, 13.0), "1-0 + 1-1": (10.0, 3.0, 10.0, 3.0)}
    assert relative("tokens_per_s", "over", theirs, mine)[0] == pytest.approx(10 / 6)
    assert set(one.by_item("tau")) == {"0-0", "0-1", "1-0", "1-1"}, (
        "what has no clock is compared by prompt"
    )


PHASES = {
    "draft": 0.002,
    "verify": 0.005,
    "accept": 0.002,
    "commit": 0.001,
    "head": 0.0005,
    "cycle": 0.0101,
}
RUNS = [TimedRun(9, 3, 0.25, 3.0), TimedRun(9, 3, 0.75, 6.0)]
"""One second of prefill, nine of decoding."""


def test_shares_are_of_all_time_and_add_up():
    times = time_shares(RUNS, PHASES)
    assert [times[name] for name in NAMES] == pytest.approx(
        [0.1, 0.18, 0.45, 0.27, 10, 7, 2.5, 2.5 / 7]
    )
    assert set(times) == {*NAMES, *(f"{name}_ci95" for name in NAMES)} and set(NAMES) <= set(
        METRICS
    )


def test_what_the_pass_could_not_tell_is_unknown():
    assert time_shares(RUNS, None) == {} == time_shares([], PHASES)
    times = time_shares(RUNS, {name: x for name, x in PHASES.items() if name != "head"})
    assert times["head_ms"] is times["head_share"] is None
    assert times["forward_ms"] == pytest.approx(7)


def scaled(*factors: float) -> list[dict[str, float]]:
    """A prompt for each factor, whose drafting took so many times as long."""
    return [PHASES | {"draft": factor * PHASES["draft"]} for factor in factors]


def test_intervals_are_over_the_prompts_of_both_passes():
    times = time_shares(RUNS, PHASES, scaled(0.5, 1.0, 1.5))
    for name in NAMES[:5]:
        low, high = times[f"{name}_ci95"]
        assert low < times[name] < high
    for name, ends in {
        "cycle_ms": (9, 11),  # one prompt drawn three times
        "prefill_share": (0.25 / 3.25, 0.75 / 6.75),
        "forward_ms": (7, 7),  # only drafting varies
    }.items():
        assert times[f"{name}_ci95"] == pytest.approx(ends)
    for runs, prompts in ((RUNS, scaled(1.0)), (RUNS[:1], scaled(0.5, 1.5)), (RUNS, [])):
        alone = time_shares(runs, PHASES, prompts)
        assert {alone[f"{name}_ci95"] for name in NAMES} == {None}
