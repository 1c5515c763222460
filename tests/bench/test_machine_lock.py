"""One process at a time is timed; the others say for whom they wait."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.reports.run import check_selection
from bench.run import machine_lock as machine

HOLD = ("import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_SH); print(flush=True); "
        "sys.stdin.read()")


class Clock:
    """Stands in for `time`: a pause takes no time, and after `most` seconds of pauses `then` is called."""

    def __init__(self, most: float, then: Callable[[], object]) -> None:
        self._now, self._most, self._then = 0.0, most, then

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        if self._now > self._most:
            self._then()


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEEWAY_LOCK", str(tmp_path / "other.lock"))
    return tmp_path / "other.lock"


@pytest.fixture
def other(lock: Path) -> Iterator[subprocess.Popen]:
    """A process that holds the lock until its input is closed."""
    words = [sys.executable, "-c", HOLD, str(lock), "store.dir=/their/store"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        yield process
        process.communicate()


def test_who_waits_says_for_whom_and_how_long(other: subprocess.Popen, caplog: pytest.LogCaptureFixture,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "time", Clock(70, other.communicate))
    with machine.alone():
        assert machine.is_timing()
    first, *later = caplog.messages
    whom = rf"process {other.pid} \(.*; store /their/store\), which decodes; timed=0 would not wait"
    assert re.fullmatch(f"waiting for {whom}", first)
    assert [re.fullmatch(f"waiting (30|60) s for {whom}", line)[1] for line in later] == ["30", "60"]


def test_a_wait_ends_at_its_limit_in_one_line(command, other: subprocess.Popen,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEEWAY_LOCK_WAIT", "45")
    monkeypatch.setattr(machine, "time", Clock(100, lambda: pytest.fail("it waits on")))
    result = command("method=ar", "timed=1")
    [line] = result.err.splitlines()
    assert result.status == 2 and line.startswith(f"error: waited 45 s for process {other.pid} (")
    assert line.endswith("which decodes; timed=0 would not wait; LEEWAY_LOCK_WAIT=SECONDS waits longer, "
                         "LEEWAY_LOCK=FILE takes another lock")
    assert command("method=ar", "timed=0").status == 0, "others may decode beside it"


def test_others_wait_while_one_is_timed(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEEWAY_LOCK_WAIT", "0")
    with machine.decoding(), machine.decoding():
        assert not machine.is_timing()
        with pytest.raises(machine.MachineBusy, match="which decodes"), machine.alone():
            pass
    for one in (machine.decoding, machine.alone):
        with machine.alone(), pytest.raises(machine.MachineBusy, match=r"waited 0 s for .*, which "), one():
            pass
    assert not machine.is_timing()


@pytest.mark.parametrize(("name", "value", "complaint"), [
    ("LEEWAY_LOCK", "/nowhere/lock", "LEEWAY_LOCK=/nowhere/lock: no such folder; give a file in a folder that exists"),
    ("LEEWAY_LOCK_WAIT", "soon", "LEEWAY_LOCK_WAIT=soon: must be a number of seconds, at least 0"),
    ("LEEWAY_LOCK_WAIT", "-1", "LEEWAY_LOCK_WAIT=-1: must be a number of seconds, at least 0"),
    ("LEEWAY_LOCK_WAIT", "nan", "LEEWAY_LOCK_WAIT=nan: must be a number of seconds, at least 0")])
def test_a_wrong_variable_is_one_line(command, monkeypatch: pytest.MonkeyPatch, name: str, value: str,
                                      complaint: str) -> None:
    monkeypatch.setenv(name, value)
    result = command("method=ar", "timed=1")
    assert result.status == 2 and result.err == f"error: {complaint}\n"


def test_rows_that_select_by_speed_need_two_timed_prompts() -> None:
    def plan(timed: int) -> Any:
        spec = SimpleNamespace(choice=object(), title="MARS beside the best lossless method")
        return SimpleNamespace(spec=spec, cells={("a",): SimpleNamespace(timed=timed)}, is_untimed=lambda coords: False)

    check_selection([plan(2)])
    with pytest.raises(ValueError, match=r"^timed=1: MARS beside .* give at least timed=2$"):
        check_selection([plan(1)])
