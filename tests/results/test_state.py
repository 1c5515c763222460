"""What a cell lacks, as data: states by hand, and what is to be done about them."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.store.state import CellState, Todo, Wanted, lacking
from tests.helpers.tables import beside

IDS = tuple("abcdefgh")
ORDER = sorted(IDS, key=lambda name: sha256(name.encode()).hexdigest())
"""The order of timing, d, f, c, b, e, h, a, g: by the SHA-256 of the ids (the hexadecimal digits sort as the
bytes do)."""
WANTED = Wanted(prompts=IDS, timed=4, scorers=frozenset({"new", "same"}))
ANSWERED = CellState(answered=frozenset(IDS), is_recorded=True, scorer="same")
DONE = replace(ANSWERED, timed=frozenset(ORDER[:4]), is_profiled=True, baseline=ANSWERED)
AS_IT_IS = Todo(baseline=Todo())


LACKING = beside(__file__, "lacking.yaml")
PROMPTS = "answered", "unscored", "timed", "traced", "decode", "score", "trace", "time"


def changed(given: Any, changes: dict[str, Any]) -> Any:
    """A state, a wish or a Todo with these changes; prompts are the letters of a word."""
    plain: dict[str, Any] = {}
    for name, value in changes.items():
        if name in PROMPTS and isinstance(value, str):
            value = tuple(value) if isinstance(given, Todo) else frozenset(value)
        elif isinstance(value, dict) and name == "baseline":
            value = changed(given.baseline, value)
        plain[name] = value
    return replace(given, **plain)


@pytest.mark.parametrize("case", LACKING)
def test_what_is_lacking(case: dict[str, Any]) -> None:
    """Changes of a cell that is done, of what is wanted of it, and of the Todo, which is empty."""
    state, wanted, todo = (case.get(name, {}) for name in ("state", "wanted", "todo"))
    found = lacking(changed(WANTED, wanted), changed(DONE, state))
    assert found == changed(AS_IT_IS, todo)
    assert bool(found) == (found not in (Todo(), AS_IT_IS))


@pytest.mark.parametrize(
    ("timed", "due"),
    [((), ORDER[:4]), (ORDER[:4], ORDER[4:6]), (ORDER[:6], []), (ORDER[1:6], ORDER[:1])],
)
def test_a_session_times_the_next_part_in_whole_batches(timed, due) -> None:
    """Six prompts are three batches of two: the first of two sessions has two of them."""
    wanted = replace(WANTED, timed=6, batch=2, sessions=2)
    assert [*lacking(wanted, replace(DONE, timed=frozenset(timed))).time] == due


def test_a_failed_prompt_is_measured_and_not_complete() -> None:
    failed = replace(ANSWERED, answered=set(IDS[1:]), failed={"a": "too long"})
    alone = lacking(replace(WANTED, timed=0), replace(failed, baseline=ANSWERED))
    beside = lacking(WANTED, replace(DONE, baseline=failed))  # the baseline tried it
    assert [bool(todo) and todo.is_measured for todo in (alone, beside)] == [True, True]
    assert not alone.untried
    lost = lacking(WANTED, replace(DONE, baseline=replace(failed, failed={})))
    assert lost.untried == ["a"]
    unmeasured = lost, Todo(whole=True), Todo(time=("a",)), Todo(fault="unreadable")
    assert not any(todo.is_measured for todo in unmeasured)


def test_two_numbers_of_prompts_of_one_cell_are_done_together() -> None:
    many = replace(AS_IT_IS, decode=("c",), time=("a", "d"))
    assert Todo(time=("b", "a")).joined(many) == replace(many, time=("b", "a", "d"))


@pytest.mark.parametrize(
    ("todo", "words"),
    [
        (Todo(), "complete"),
        (Todo(whole=True), "everything"),
        (Todo(decode=("a", "b"), time=("a",)), "2 answers, 1 time"),
        (Todo(trace=("a",), baseline=Todo(decode=("a",))), "1 trace, baseline"),
        (Todo(record=True), "a last look"),
    ],
)
def test_what_the_dry_run_says(todo: Todo, words: str) -> None:
    assert str(todo) == words


def done(wanted: Wanted, state: CellState, todo: Todo) -> CellState:
    """The state after a run that did all of the Todo."""
    return replace(
        state,
        answered=state.answered | {*todo.decode},
        failed={name: why for name, why in state.failed.items() if name not in todo.decode},
        unscored=frozenset() if wanted.can_score else state.unscored | {*todo.decode},
        scorer="new" if todo.rescore or state.scorer is None else state.scorer,
        timed=state.timed | {*todo.time},
        traced=state.traced | {*todo.decode, *todo.trace},
        is_profiled=state.is_profiled or todo.profile,
        is_recorded=True,
        failure=None,
        baseline=None if todo.baseline is None else done(wanted, state.baseline, todo.baseline),
    )


SUBSETS = st.frozensets(st.sampled_from(IDS))


@st.composite
def states(draw: st.DrawFn, has_baseline: bool = True) -> CellState:
    """Any state that a killed run or a failed prompt may leave."""
    answered = draw(SUBSETS)
    return CellState(
        answered=answered,
        failed=dict.fromkeys(draw(SUBSETS) - answered, "too long"),
        unscored=draw(SUBSETS) & answered,
        scorer=draw(st.sampled_from([None, "old", "same", "new"])),
        timed=draw(SUBSETS) & answered,
        traced=draw(SUBSETS) & answered,
        is_profiled=draw(st.booleans()),
        is_recorded=draw(st.booleans()),
        failure=draw(st.sampled_from([None, "killed"])),
        baseline=draw(states(has_baseline=False)) if has_baseline else None,
    )


@given(
    states(),
    st.builds(
        Wanted,
        prompts=st.just(IDS),
        timed=st.integers(0, 9),
        batch=st.integers(1, 3),
        sessions=st.integers(1, 3),
        is_traced=st.booleans(),
        can_score=st.booleans(),
        scorers=st.just(frozenset({"new", "same"})),
    ),
)
def test_what_is_lacking_is_done_once(state: CellState, wanted: Wanted) -> None:
    """A run does what is lacking, nothing that is there, and then the cell is complete: after as
    many runs as there are measuring sessions, and one more where failed prompts were mended."""
    for _ in range(wanted.sessions + 1):
        todo = lacking(wanted, state)
        assert not {*todo.decode} & (state.answered | {*todo.score} | {*todo.trace})
        assert not {*todo.time} & (state.timed | state.failed.keys())
        assert {*todo.score} <= state.answered and not {*todo.trace} & state.traced
        state = done(wanted, state, todo)
    assert not lacking(wanted, state)
    due = {*ORDER[: wanted.timed]}
    assert due <= state.timed and state.answered == {*IDS}
