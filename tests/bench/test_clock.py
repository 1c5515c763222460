"""The timed pass: one process at a time, threads, stalls, progress, and the tokens that it may differ in."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import bench.run.console as progress
from bench.run import locks
from bench.run import models as model_pool
from bench.run import timed as rotation
from bench.run import timed as stalls
from bench.run.timed import REPEATS, SHARE, StallWatch
from tests.helpers.summaries import written


@pytest.fixture(autouse=True)
def judged(no_clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests must not depend on how busy the machine is; these have a clock of their own."""
    monkeypatch.setattr(stalls, "MOST_IDLE", 0.1)


class Machine:
    """A clock that moves only when work is done: (wall, CPU) seconds of each run, the last one for all further ones."""

    def __init__(self, runs: Sequence[tuple[float, float]]) -> None:
        self.runs, self.now, self.done = iter(runs), (0.0, 0.0), 0
        self.last = (1.0, 1.0)

    def clock(self) -> tuple[float, float]:
        return self.now

    def work(self) -> int:
        self.last = next(self.runs, self.last)
        self.now = (self.now[0] + self.last[0], self.now[1] + self.last[1])
        self.done += 1
        return self.done

    def attempts(self, runs: int = 100, judges: bool = True) -> Iterator[list[stalls.Attempt[int]]]:
        """Those of one run after the other."""
        watch = StallWatch(runs, judges, self.clock)
        while True:
            yield watch.attempts("sps", self.work)


def test_a_stalled_run_is_timed_again_and_kept_beside() -> None:
    [first, second] = next(Machine([(2.0, 1.0), (1.0, 0.99)]).attempts())
    assert first == stalls.Attempt(1, 2.0, 1.0, stalled=True)
    assert (second.result, second.stalled) == (2, False) and second.cpu_s == pytest.approx(0.99)


def test_a_slow_run_that_used_its_time_counts() -> None:
    """Selecting by seconds would make whatever is timed again look faster."""
    runs = Machine([(1.0, 1.0), (9.0, 9.0)]).attempts()
    assert [len(next(runs)) for _ in range(3)] == [1, 1, 1]


def test_the_least_stalled_counts_where_all_are() -> None:
    made = next(Machine([(2.0, 1.0), (1.5, 1.2), (4.0, 1.0)]).attempts())
    assert len(made) == 1 + REPEATS and all(one.stalled for one in made)
    assert [one.result for one in made] == [3, 1, 2], "in the order of their CPU time over wall time"


def test_threads_that_usually_run_together_are_missed() -> None:
    """Two threads use two seconds a second: one second is a stall then, and is none for a method of one thread."""
    together = Machine([(1.0, 1.95), (1.0, 1.9), (1.0, 1.0), (1.0, 1.92)]).attempts()
    assert [len(next(together)) for _ in range(3)] == [1, 1, 2]
    alone = Machine([(1.0, 1.0)]).attempts()
    assert [len(next(alone)) for _ in range(3)] == [1, 1, 1]


def test_repeats_are_bounded_in_a_run_and_in_a_rotation() -> None:
    machine = Machine([(2.0, 1.0)])
    runs = machine.attempts(runs=40)
    for _ in range(40):
        next(runs)
    assert machine.done == 40 + SHARE * 40


def test_nothing_is_judged_where_cpu_time_means_nothing() -> None:
    [only] = next(Machine([(2.0, 0.1)]).attempts(judges=False))
    assert only == stalls.Attempt(1, 2.0, None)


def test_the_record_of_a_cell_says_what_was_timed_again(command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two prompts is stalled once, in the cell and not in its baseline."""
    machine, real = Machine([(1.0, 1.0)] * 2 + [(3.0, 1.0), (1.0, 1.0), (1.0, 1.0)]), rotation.answer

    def answer(method, chunk, limits, stream, turns=None):
        if turns is None:  # not the warm-up
            machine.work()
        return real(method, chunk, limits, stream, turns)

    monkeypatch.setattr(rotation, "answer", answer)
    monkeypatch.setattr(rotation, "StallWatch", partial(StallWatch, clock=machine.clock))
    result = command("method=sps", "n=2", "timed=2")
    assert result.status == 0
    cell = result.cell
    rows = [run for row in cell.timed() for run in row.runs]
    [again] = [run for run in rows if run.repeated]
    assert (again.wall_s, again.cpu_s, again.stalled) == (1.0, 1.0, False)
    assert [(one.wall_s, one.cpu_s) for one in again.repeated] == [(3.0, 1.0)] and again.repeated[0].decode_s > 0
    assert all((run.wall_s, run.cpu_s, run.repeated) == (1.0, 1.0, ()) for run in rows if run is not again)
    assert (written(cell).timed, written(cell).retimed, written(cell).stalled) == (2, 1, 0)


@pytest.mark.parametrize(("seconds", "chosen"), [
    ({1: 2, 2: 2, 4: 1, 6: 2}, 4), ({1: 2, 2: 2, 4: 2, 6: 1}, 6), ({1: 1, 2: 2, 4: 2, 6: 2}, 1), ({1: 1}, 1),
    ({1: 1.0, 2: 1.05}, 2)], ids=str)
def test_the_quickest_number_of_threads(seconds: dict[int, float], chosen: int,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """A small lead is noise."""
    machine = SimpleNamespace(used=1, now=0.0)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: setattr(machine, "used", count))
    monkeypatch.setattr(torch, "bmm", lambda *_: setattr(machine, "now", machine.now + seconds[machine.used]))
    monkeypatch.setattr(model_pool.time, "perf_counter", lambda: machine.now)
    monkeypatch.setattr(model_pool.time, "sleep", lambda _: None)
    assert model_pool.quickest_threads.__wrapped__(max(seconds)) == chosen


def test_the_time_left_knows_that_trees_are_slower(monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    """8 chains in 80 s, then 2 of 12 trees in 200 s: 1,000 s of work are left where 280 s took 280 s."""
    clock = iter([0.0, 80.0, 80.0, 280.0, 280.0])
    monkeypatch.setattr(progress, "EVERY_S", 10.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.Bars("quality pass", {"model": 8, "eagle3": 12}) as bars:
        chains, trees = bars.row("sps", 8, kind="model"), bars.row("eagle3", 12, kind="eagle3")
        chains.advance(8, [], 80.0)
        trees.advance(2, [], 200.0)
    assert [line.split(", ")[1].split(";")[0] for line in capsys.readouterr().err.splitlines()] == [
        "2.0 min left", "16.7 min left"]


def test_the_timed_pass_counts_each_prompt_once(command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    said = command("method=sps", "n=3", "timed=2").err
    assert re.findall(r"timed pass.*?: (\d+) of (\d+) prompts", said) == [("1", "2"), ("2", "2")]


@pytest.fixture
def waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The kinds of lock that this process waited for, none of them to its end."""
    monkeypatch.setenv("LEEWAY_LOCK", str(tmp_path / "lock"))
    found: list[int] = []
    real = fcntl.flock

    def flock(file: int, kind: int) -> None:
        if kind & fcntl.LOCK_NB:
            real(file, kind)
        else:
            found.append(kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    return found


def test_others_wait_while_one_is_timed(waits: list[int], caplog: pytest.LogCaptureFixture) -> None:
    with locks.machine(alone=False), locks.machine(alone=False):
        assert not waits and not locks.is_timing()
        with locks.machine(alone=True):
            assert waits == [fcntl.LOCK_EX] and "which decodes (`fuser -v " in caplog.text
    with locks.machine(alone=True):
        assert locks.is_timing()
        with locks.machine(alone=False), locks.machine(alone=True):
            assert waits == [fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_EX] and "which is timed (" in caplog.text
    assert not locks.is_timing()


def test_a_wrong_variable_is_one_line(command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEEWAY_LOCK", "/nowhere/lock")
    result = command("method=ar", "timed=1")
    assert result.status == 2
    assert result.err == "error: LEEWAY_LOCK=/nowhere/lock: no such folder; give a file in a folder that exists\n"
