"""The timed pass: one process at a time, threads and progress."""

from __future__ import annotations

import fcntl
import re
from itertools import cycle
from types import SimpleNamespace

import pytest
import torch

import bench.run.console as progress
from bench.run import locks
from bench.run import models as model_pool


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({1: 2, 2: 2, 4: 1, 6: 2}, 4),
        ({1: 2, 2: 2, 4: 2, 6: 1}, 6),
        ({1: 1, 2: 2, 4: 2, 6: 2}, 1),
        ({1: 1}, 1),
        ({1: 1.0, 2: 1.05}, 2),
    ],
    ids=str,
)
def test_the_quickest_number_of_threads(seconds, chosen, monkeypatch):
    """A small lead is noise."""
    machine = SimpleNamespace(used=1, now=0.0)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: setattr(machine, "used", count))
    monkeypatch.setattr(
        torch, "bmm", lambda *_: setattr(machine, "now", machine.now + seconds[machine.used])
    )
    monkeypatch.setattr(model_pool.time, "perf_counter", lambda: machine.now)
    monkeypatch.setattr(model_pool.time, "sleep", lambda _: None)
    assert model_pool.quickest_threads.__wrapped__(max(seconds)) == chosen


@pytest.mark.parametrize(
    ("seconds", "most", "chosen"),
    [
        ([(2, 2)], 2, 1),
        ([(1.05, 1)], 2, 1),
        ([(1.2, 1)], 2, 2),
        ([(2, 1), (2, 1), (1, 9)], 2, 1),
        ([], 1, 1),
    ],
)
def test_the_threads_of_a_small_model(seconds, most, chosen, monkeypatch):
    """One, unless all are clearly quicker, each time that one looks."""
    trials = cycle(seconds)
    monkeypatch.setattr(model_pool, "_small_products", lambda *_: next(trials))
    assert model_pool.threads_of_small.__wrapped__(most) == chosen


def test_a_model_beyond_the_caches_takes_all_threads(monkeypatch):
    monkeypatch.setattr(model_pool, "threads_of_small", lambda most: 1)

    def threads(size: int) -> int:
        model = SimpleNamespace(parameters=lambda: [SimpleNamespace(nbytes=size)])
        target = SimpleNamespace(device=torch.device("cpu"), model=model)
        return model_pool.decoding_threads(target)

    assert threads(model_pool.SMALLEST - 1) == 1
    assert threads(model_pool.SMALLEST) == model_pool.DEFAULT_THREADS


def test_the_time_left(monkeypatch, capsys):
    """8 of 20 prompts took 80 s, then 10 of 20 took 280 s."""
    clock = iter([0.0, 80.0, 280.0])
    monkeypatch.setattr(progress, "EVERY_S", 10.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.ProgressBars("quality pass", 20) as bars:
        bars.row("sps", 8).advance(8, [], 80.0)
        bars.row("eagle3", 12).advance(2, [], 200.0)
    assert [line.split(", ")[1].split(";")[0] for line in capsys.readouterr().err.splitlines()] == [
        "2.0 min left",
        "4.7 min left",
    ]


def test_the_timed_pass_counts_each_prompt_once(command, monkeypatch):
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    said = command("method=sps n=3 timed=2").err
    assert re.findall(r"timed pass.*?: (\d+) of (\d+) prompts", said) == [("1", "2"), ("2", "2")]


@pytest.fixture
def waits(tmp_path, monkeypatch) -> list[int]:
    """The kinds of lock that this process waited for, none of them to its end."""
    monkeypatch.setenv("LEEWAY_LOCK", str(tmp_path / "lock"))
    found = []
    real = fcntl.flock

    def flock(file: int, kind: int) -> None:
        if kind & fcntl.LOCK_NB:
            real(file, kind)
        else:
            found.append(kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    return found


def test_others_wait_while_one_is_timed(waits, caplog):
    with locks.machine(alone=False), locks.machine(alone=False):
        assert not waits
        with locks.machine(alone=True):
            assert waits == [fcntl.LOCK_EX] and "which decodes (`fuser -v " in caplog.text
    with locks.machine(alone=True), locks.machine(alone=False), locks.machine(alone=True):
        assert (
            waits == [fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_EX]
            and "which is timed (" in caplog.text
        )


def test_a_wrong_variable_is_one_line(command, monkeypatch):
    monkeypatch.setenv("LEEWAY_LOCK", "/nowhere/lock")
    result = command("method=ar timed=1", status=2)
    assert (
        result.err
        == "error: LEEWAY_LOCK=/nowhere/lock: no such folder; give a file in a folder that exists\n"
    )
