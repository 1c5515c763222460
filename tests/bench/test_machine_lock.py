"""One process at a time is timed; the others say that they wait."""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.reports.run import check_selection
from bench.run import locks


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
    with locks.machine_shared(), locks.machine_shared():
        assert not waits and not locks.is_timing()
        with locks.machine_alone():
            assert waits == [fcntl.LOCK_EX] and "which decodes (`fuser -v " in caplog.text
    with locks.machine_alone():
        assert locks.is_timing()
        with locks.machine_shared(), locks.machine_alone():
            assert waits == [fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_EX] and "which is timed (" in caplog.text
    assert not locks.is_timing()


def test_a_wrong_variable_is_one_line(command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEEWAY_LOCK", "/nowhere/lock")
    result = command("method=ar", "timed=1")
    assert result.status == 2
    assert result.err == "error: LEEWAY_LOCK=/nowhere/lock: no such folder; give a file in a folder that exists\n"


def test_rows_that_select_by_speed_need_two_timed_prompts() -> None:
    def plan(timed: int) -> Any:
        spec = SimpleNamespace(choice=object(), title="MARS beside the best lossless method")
        return SimpleNamespace(spec=spec, cells={("a",): SimpleNamespace(timed=timed)}, is_untimed=lambda coords: False)

    check_selection([plan(2)])
    with pytest.raises(ValueError, match=r"^timed=1: MARS beside .* give at least timed=2$"):
        check_selection([plan(1)])
