"""What a cell lacks, as data: states by hand, and what is to be done about them."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.store.state import CellState, Todo, Wanted, lacking

IDS = tuple(f"task-{number}" for number in range(8))
ORDER = sorted(IDS, key=lambda name: sha256(name.encode()).hexdigest())
"""The order of timing: by the SHA-256 of the ids (the hexadecimal digits sort as the bytes do)."""
WANTED = Wanted(prompts=IDS, timed=4, scorers=frozenset({"new", "same"}))
ANSWERED = CellState(answered=frozenset(IDS), is_recorded=True, scorer="same")
DONE = replace(ANSWERED, timed=frozenset(ORDER[:4]), is_profiled=True, baseline=ANSWERED)


def without(*lost: str) -> frozenset[str]:
    return frozenset(IDS) - frozenset(lost)


@pytest.mark.parametrize(
    ("state", "wanted", "todo"),
    [
        (DONE, WANTED, Todo(baseline=Todo())),
        (replace(DONE, answered=without(IDS[2])), WANTED, Todo(decode=(IDS[2],), baseline=Todo())),
        (
            replace(
                DONE, baseline=replace(ANSWERED, answered=without(IDS[5]), failure="no memory")
            ),
            WANTED,
            Todo(baseline=Todo(decode=(IDS[5],))),
        ),
        (
            replace(DONE, answered=without(ORDER[1]), failed={ORDER[1]: "too long"}),
            WANTED,
            Todo(
                decode=(ORDER[1],), failed={ORDER[1]: "too long"}, time=(ORDER[4],), baseline=Todo()
            ),
        ),
        (
            replace(DONE, timed=frozenset(ORDER[:2]), is_profiled=False),
            WANTED,
            Todo(time=tuple(ORDER[2:4]), profile=True, baseline=Todo()),
        ),
        (replace(DONE, timed=frozenset()), replace(WANTED, timed=0), Todo(baseline=Todo())),
        (replace(DONE, unscored=frozenset({IDS[0]})), WANTED, Todo(score=IDS[:1], baseline=Todo())),
        (
            replace(DONE, unscored=frozenset({IDS[0]})),
            replace(WANTED, can_score=False),
            Todo(baseline=Todo()),
        ),
        (replace(DONE, scorer="old"), WANTED, Todo(score=IDS, rescore=True, baseline=Todo())),
        (replace(DONE, scorer="old"), replace(WANTED, can_score=False), Todo(baseline=Todo())),
        (replace(DONE, scorer=None), WANTED, Todo(baseline=Todo())),
        (
            replace(DONE, traced=without(IDS[3])),
            replace(WANTED, is_traced=True),
            Todo(trace=(IDS[3],), baseline=Todo()),
        ),
        (replace(DONE, is_recorded=False), WANTED, Todo(record=True, baseline=Todo())),
        (replace(DONE, failure="killed"), WANTED, Todo(failure="killed", baseline=Todo())),
        (
            replace(ANSWERED, failure="its clock"),
            replace(WANTED, timed=0, for_itself=False),
            Todo(),
        ),
    ],
)
def test_what_is_lacking(state: CellState, wanted: Wanted, todo: Todo) -> None:
    assert lacking(wanted, state) == todo
    assert bool(todo) == (todo not in (Todo(), Todo(baseline=Todo())))


@pytest.mark.parametrize(
    ("timed", "due"),
    [((), ORDER[:4]), (ORDER[:4], ORDER[4:6]), (ORDER[:6], []), (ORDER[1:6], ORDER[:1])],
)
def test_a_session_times_the_next_part_in_whole_batches(timed, due) -> None:
    """Six prompts are three batches of two: the first of two sessions has two of them."""
    wanted = replace(WANTED, timed=6, batch=2, sessions=2)
    state = replace(DONE, timed=frozenset(timed))
    assert list(lacking(wanted, state).time) == list(due)


def test_a_failed_prompt_is_measured_and_not_complete() -> None:
    failed = replace(ANSWERED, answered=without(IDS[0]), failed={IDS[0]: "too long"})
    todo = lacking(replace(WANTED, timed=0), replace(failed, baseline=ANSWERED))
    assert todo and todo.is_measured and not todo.untried
    untried = lacking(WANTED, replace(DONE, baseline=failed))
    assert untried and untried.is_measured, "the baseline tried it"
    lost = lacking(WANTED, replace(DONE, baseline=replace(failed, failed={})))
    assert lost.untried == [IDS[0]] and not lost.is_measured
    for todo in (Todo(whole=True), Todo(time=("a",)), Todo(fault="unreadable")):
        assert not todo.is_measured


def test_two_numbers_of_prompts_of_one_cell_are_done_together() -> None:
    few, many = Todo(time=("b", "a")), Todo(decode=("c",), time=("a", "d"), baseline=Todo())
    assert few.joined(many) == Todo(decode=("c",), time=("b", "a", "d"), baseline=Todo())


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
    answered = state.answered | {*todo.decode}
    unscored = frozenset() if wanted.can_score else state.unscored | {*todo.decode}
    baseline = None
    if state.baseline is not None and todo.baseline is not None:
        baseline = done(wanted, state.baseline, todo.baseline)
    return replace(
        state,
        answered=answered,
        failed={name: why for name, why in state.failed.items() if name not in todo.decode},
        unscored=unscored,
        scorer="new" if todo.rescore or state.scorer is None else state.scorer,
        timed=state.timed | {*todo.time},
        traced=state.traced | {*todo.decode, *todo.trace},
        is_profiled=state.is_profiled or todo.profile,
        is_recorded=True,
        failure=None,
        baseline=baseline,
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
