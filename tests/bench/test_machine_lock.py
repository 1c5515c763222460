"""One process at a time is timed; the others say for whom they wait."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.config.paths import PROJECT
from bench.reports.run import check_selection
from bench.run.timed_pass import machine_lock as machine

HOLD = ("import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_SH); print(flush=True); "
        "sys.stdin.read()")


def test_who_waits_says_for_whom_and_how_long(tmp_path: Path, caplog: pytest.LogCaptureFixture,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "other.lock"
    monkeypatch.setattr(machine, "LOCK", lock)
    monkeypatch.setattr(machine, "TOLD_EVERY_S", 0.6)
    words = [sys.executable, "-c", HOLD, str(lock), "store.dir=/their/store"]
    with subprocess.Popen(words, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin and other.stdout and other.stdout.readline()
        said = logging.Handler()
        monkeypatch.setattr(said, "emit", lambda record: other.stdin.close() if "waiting 1 s" in record.getMessage()
                            else None)
        machine.log.addHandler(said)
        with machine.alone():
            pass
        machine.log.removeHandler(said)
    first, *later = caplog.messages
    assert first.startswith(f"waiting for process {other.pid} (")
    assert first.endswith("; store /their/store), which decodes; timed=0 would not wait")
    assert any(line.startswith(f"waiting 1 s for process {other.pid} (") for line in later)


def test_rows_that_select_by_speed_need_two_timed_prompts() -> None:
    def plan(timed: int) -> Any:
        spec = SimpleNamespace(choice=object(), title="MARS beside the best lossless method")
        return SimpleNamespace(spec=spec, cells={("a",): SimpleNamespace(timed=timed)}, is_untimed=lambda coords: False)

    check_selection([plan(2)])
    with pytest.raises(ValueError, match=r"^timed=1: MARS beside .* give at least timed=2$"):
        check_selection([plan(1)])
