"""Trackers: what trackio's database holds after a command; whatever goes wrong with one, a command is not hurt."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bench.run import trackers as logbook
from bench.run.trackers import row_of
from results.store.sample import FailedSample
from tests.helpers.summaries import written
from tests.helpers.synthetic_cells import compared, sample


@pytest.fixture(scope="module")
def trackio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The library, which reads once where its files are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKIO_DIR", str(tmp_path_factory.mktemp("trackio")))
        import trackio
        yield trackio


def rows(project: str, run: Any) -> list[dict[str, Any]]:
    from trackio.sqlite_storage import SQLiteStorage

    return SQLiteStorage.get_logs(project, run.name, run_id=run.id)


def test_a_run_of_trackio_is_resumed_and_not_doubled(command, trackio: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logbook, "EVERY_S", 0.02)
    given = "method=sps", "tracker=trackio", "tracker.project=resumed", "trace=true", "timed=2"
    first = command(*given)
    assert first.status == 0 and first.err == ""
    [run] = trackio.Api().runs("resumed")
    assert run.id == first.cell.key and run.config["rule"]["name"] == "lossless"
    *live, shown, last = rows("resumed", run)
    assert live[-1]["live/prompts"] == 3 and last["tau"] == written(first.cell).tau

    more = command(*given, "n=5")
    [run] = trackio.Api().runs("resumed")
    *live, shown, last = rows("resumed", run)
    assert last["n"] == 5 and last["speedup"] == written(more.cell).speedup
    assert {row["id"] for row in shown["answers"]["_value"]} == {sample.id for sample in more.cell.samples()}
    assert live[-1]["live/prompts"] == 5

    before = rows("resumed", run)
    assert command(*given, "n=5").status == 0
    assert rows("resumed", run) == before, "nothing was measured, nothing is logged"
    assert trackio.Api().runs("resumed")[0].config["summary"]["n"] == 5


def test_a_sweep_is_a_group_with_a_run_of_its_figure(command, trackio: Any) -> None:
    result = command("+sweep=draft_length", "task=mini_gsm", "draft.length=2,3", "tracker=trackio", "timed=0",
                     "tracker.project=sweep")
    assert result.status == 0 and result.err == ""
    runs = {run.id: run for run in trackio.Api().runs("sweep")}
    assert {run.config["_Group"] for run in runs.values()} == {"sweep_draft_length"}
    figure = rows("sweep", runs["report-sweep_draft_length"])[0]
    assert {value["_type"] for value in figure.values() if isinstance(value, dict)} == {"trackio.image",
                                                                                       "trackio.table"}


class Faulty:
    """A run that notes what is asked of it, and fails or hangs at one of its methods."""

    def __init__(self, calls: list[str], wrong: str, hangs: bool) -> None:
        self._calls, self._wrong, self._hangs = calls, wrong, hangs
        self._note("open")

    def _note(self, name: str) -> None:
        self._calls.append(name)
        if name == self._wrong:
            if self._hangs:
                threading.Event().wait()
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
    monkeypatch.setattr(logbook, "EVERY_S", 0.01)
    monkeypatch.setattr(logbook, "TrackerRun", lambda name, about, options: Faulty(calls, wrong, hangs))
    timeout = 0.5 if hangs else 600
    result = command("method=sps,pld", "tracker=wandb", f"tracker.timeout={timeout}", "timed=0", flags=["-m"])
    assert result.status == 0 and [written(cell).n for cell in result.cells] == [3, 3]
    [line] = caplog.messages
    assert "wandb: logging disabled from" in line and ("no answer within 1 s" if hangs else "nobody there") in line
    assert calls.count(wrong) <= 1 or wrong == "finish", "it is not tried again"


def test_nothing_is_logged_while_something_is_timed(command, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(logbook, "EVERY_S", 0.001)
    monkeypatch.setattr(logbook, "is_timing", lambda: True)
    monkeypatch.setattr(logbook, "TrackerRun", lambda name, about, options: Faulty(calls, "", False))
    assert command("method=sps", "tracker=wandb", "timed=0").status == 0
    assert calls.count("live") == 1, "after the last answer alone"


def test_row_of_a_prompt() -> None:
    own = sample("a", [1] * 9, committed=[3, 5], accepted=[2, 4])
    measured = compared(own, sample("a", [1] * 8), decode_s=2.0, base_decode_s=4.0)
    row = row_of(measured)
    named = ("tokens", "tau", "accept_len", "tokens_per_s", "speedup")
    assert [row[name] for name in named] == [9, 4.0, 3.0, 4.5, 2.25]
    assert row_of(FailedSample("b", "no")) == {"id": "b", "error": "no"}
    assert "speedup" not in row_of(compared(own))
    assert not {"tokens_per_s", "decode_s"} & set(row_of(replace(measured, timed=None)))
