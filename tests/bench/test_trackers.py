"""Whatever goes wrong with a tracker, a command is not hurt; and what a row of its table holds."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from bench.run.timed_pass import machine_lock as machine
from bench.run.trackers import follower, logbook
from bench.run.trackers.answers import row_of
from bench.run.trackers.base import OpenRun
from results.store.sample import FailedSample
from tests.helpers.synthetic_cells import compared, sample


class Faulty(OpenRun):
    """A run that notes what is asked of it, and fails or hangs at one of its methods."""

    def __init__(self, calls: list[str], wrong: str, hangs: bool) -> None:
        self._calls, self._wrong, self._hangs = calls, wrong, hangs
        self._note("open")

    def _note(self, name: str) -> None:
        self._calls.append(name)
        if name == self._wrong:
            if self._hangs:
                time.sleep(30)
            raise ConnectionError("nobody\nthere")

    def live(self, values) -> None:
        self._note("live")

    def holds(self, digest) -> bool:
        return False

    def log(self, results) -> None:
        self._note("log")

    def finish(self) -> None:
        self._note("finish")


@pytest.mark.parametrize(("wrong", "hangs"), [("open", False), ("open", True), ("live", False), ("log", True),
                                               ("finish", False)])
def test_a_command_is_not_hurt(command, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wrong: str,
                               hangs: bool) -> None:
    calls: list[str] = []
    monkeypatch.setattr(follower, "EVERY_S", 0.01)
    monkeypatch.setitem(logbook.RUNS, "wandb", lambda about, options: Faulty(calls, wrong, hangs))
    timeout = 0.5 if hangs else 60
    result = command("method=sps,pld", "tracker=wandb", f"tracker.timeout={timeout}", "timed=0", flags=["-m"])
    assert result.status == 0 and [cell.summary().n for cell in result.cells] == [3, 3]
    [line] = caplog.messages
    assert "wandb: logging disabled from" in line and ("no answer within 1 s" if hangs else "nobody there") in line
    assert calls.count(wrong) <= 1 or wrong == "finish", "it is not tried again"


def test_nothing_is_logged_while_something_is_timed(command, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []
    look = follower.Follower._look

    def watched(self) -> None:
        looks.append(machine.is_timing())
        look(self)

    monkeypatch.setattr(follower, "EVERY_S", 0.001)
    monkeypatch.setattr(follower.Follower, "_look", watched)
    monkeypatch.setitem(logbook.RUNS, "wandb", lambda about, options: Faulty([], "", False))
    assert command("method=sps", "tracker=wandb").status == 0
    assert len(looks) > 3 and not any(looks)


def test_row_of_a_prompt() -> None:
    own = sample("a", [1] * 9, committed=[3, 5], accepted=[2, 4])
    measured = compared(own, sample("a", [1] * 8), decode_s=2.0, base_decode_s=4.0)
    row = row_of(measured)
    named = ("tokens", "tau", "accept_len", "tokens_per_s", "speedup")
    assert [row[name] for name in named] == [9, 4.0, 3.0, 4.5, 2.25]
    assert row_of(FailedSample("b", "no")) == {"id": "b", "error": "no"}
    assert "speedup" not in row_of(compared(own))
    assert not {"tokens_per_s", "decode_s"} & set(row_of(replace(measured, timed=None)))
