"""Trackers: what W&B's offline files hold after a command, which no fault of the service hurts; the
dashboard as files."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import wandb

from bench import dashboard
from bench.dashboard import main
from bench.run import trackers as logbook
from bench.run.trackers import row_of
from results.store.sample import FailedSample
from tests.helpers.summaries import written
from tests.helpers.synthetic_cells import compared, sample


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


@pytest.mark.parametrize(
    ("wrong", "hangs"),
    [("open", False), ("open", True), ("live", False), ("log", True), ("finish", False)],
)
def test_a_command_is_not_hurt(
    command,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wrong: str,
    hangs: bool,
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(logbook, "EVERY_S", 0.01)
    monkeypatch.setattr(logbook, "TrackerRun", lambda about, options: Faulty(calls, wrong, hangs))
    timeout = 0.5 if hangs else 600
    result = command(
        "method=sps,pld", "tracker=wandb", f"tracker.timeout={timeout}", "timed=0", flags=["-m"]
    )
    assert result.status == 0 and [written(cell).n for cell in result.cells] == [3, 3]
    [line] = caplog.messages
    assert (
        "wandb: logging disabled from" in line
        and ("no answer within 1 s" if hangs else "nobody there") in line
    )
    assert calls.count(wrong) <= 1 or wrong == "finish", "it is not tried again"


def test_nothing_is_logged_while_something_is_timed(
    command, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(logbook, "EVERY_S", 0.001)
    monkeypatch.setattr(logbook, "is_timing", lambda: True)
    monkeypatch.setattr(logbook, "TrackerRun", lambda about, options: Faulty(calls, "", False))
    assert command("method=sps", "tracker=wandb", "timed=0").status == 0
    assert calls.count("live") == 1, "after the last answer alone"


def test_results_are_logged_once(command, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    service: dict[str, str] = {}

    class Remembered(Faulty):
        def holds(self, digest) -> bool:
            return service.get("digest") == digest

        def log(self, results) -> None:
            super().log(results)
            service["digest"] = results.digest

    monkeypatch.setattr(logbook, "TrackerRun", lambda about, options: Remembered(calls, "", False))
    for prompts, logged in ((2, 1), (2, 1), (3, 2)):
        assert command("method=sps", "tracker=wandb", "timed=0", f"n={prompts}").status == 0
        assert calls.count("log") == logged, "again only where there are further answers"


def test_row_of_a_prompt() -> None:
    own = sample("a", [1] * 9, committed=[3, 5], accepted=[2, 4])
    measured = compared(own, sample("a", [1] * 8), decode_s=2.0, base_decode_s=4.0)
    row = row_of(measured)
    named = ("tokens", "tau", "accept_len", "tokens_per_s", "speedup")
    assert [row[name] for name in named] == [9, 4.0, 3.0, 4.5, 2.25]
    assert row_of(FailedSample("b", "no")) == {"id": "b", "error": "no"}
    assert "speedup" not in row_of(compared(own))
    assert not {"tokens_per_s", "decode_s"} & set(row_of(replace(measured, timed=None)))


KEY = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the client keeps its files."""
    folder = tmp_path / "client"
    folder.mkdir()
    for name in ("DIR", "CACHE_DIR", "DATA_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(folder))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setattr(logbook, "EVERY_S", 0.02)
    wandb.teardown()  # it keeps what it has read of the environment
    yield folder
    wandb.teardown()


def test_a_cell_is_a_run_of_the_client(
    command, client: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    result = command("method=sps", "tracker=wandb", "trace=true")
    assert result.status == 0 and result.err == ""
    [run] = client.glob("wandb/offline-run-*")
    assert run.name.endswith(result.cell.key)
    [file] = run.glob("*.wandb")
    for said in ("live/prompts", "live/tau", "digest", result.cell.key):
        assert said.encode() in file.read_bytes(), said
    ids = {sample.id for sample in result.cell.samples()}
    [table] = [json.loads(path.read_text()) for path in run.rglob("*.table.json")]
    assert {row[table["columns"].index("id")] for row in table["data"]} == ids
    for path in tmp_path.rglob("*"):
        assert not (path.is_file() and KEY.encode() in path.read_bytes()), f"{path} holds the key"


def logged(content: bytes) -> Iterator[bytes]:
    """The records of the client's log: LevelDB's format, blocks of 32 KiB behind a header of 7
    bytes."""
    at, whole = 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        whole, at = whole + content[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):  # full, last
            yield whole
            whole = b""


def test_runs_of_a_sweep_are_named_and_tagged_for_people(
    command, client: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read back from what the client wrote offline: name, tags, group, and the machine in the
    configuration."""
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    result = command(
        "+sweep=mars_theta",
        "tracker=wandb",
        "task=mini_gsm",
        "method=mars",
        "rule.theta=0.9",
        "timed=0",
        "n=1",
        "decoding.max_new_tokens=8",
    )
    assert result.status == 0 and result.err == ""
    found = {}
    for file in client.glob("wandb/offline-run-*/*.wandb"):
        for data in logged(file.read_bytes()):
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "run":
                found[record.run.display_name] = record.run
    names = {f"mars algorithm1 θ=0.9 K={K} mini_gsm t=1" for K in (7, 10)}
    assert {name for name in found if not name.startswith("report-")} == names
    run = found["mars algorithm1 θ=0.9 K=7 mini_gsm t=1"]
    assert {"mars", "algorithm1", "mini_gsm", "t=1", "sweep_mars_theta"} <= set(run.tags)
    assert run.run_group == "sweep_mars_theta"
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert (
        config["environment"]["torch"]
        and config["environment"]["cpu"]
        and "accelerator" in config["environment"]
    )


def test_a_service_that_does_not_answer_costs_one_line(
    command, client: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    caplog.set_level(logging.WARNING)
    with (
        socket.socket() as held
    ):  # nobody else gets its port meanwhile, and connections are refused
        held.bind(("127.0.0.1", 0))
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{held.getsockname()[1]}")
        result = command(
            "method=sps,pld", "tracker=wandb", "tracker.timeout=1", "timed=0", flags=["-m"]
        )
    assert result.status == 0 and [written(cell).n for cell in result.cells] == [3, 3]
    [line] = [
        line for line in caplog.messages if "wandb: logging disabled from" in line
    ]  # the client says more
    assert "all results are in the store" in line


def test_dashboard_as_files_needs_no_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert main([f"out={tmp_path}"]) == 0
    sections = json.loads((tmp_path / "workspace.json").read_text())["section"]["panelBankConfig"][
        "sections"
    ]
    chapters = dashboard.chapters()
    assert [section["name"] for section in sections[1:]] == [chapter.title for chapter in chapters]
    assert all(section["panels"] for section in sections)
    assert len(list((dashboard.CONF / "sweep").glob("*.yaml"))) == len(chapters) - 3
    report = (tmp_path / "report.json").read_text()
    for name in ("mars_table1_paper", "arc_table2_paper", "sweep_mars_theta", "K = 10", "mini_gsm"):
        assert name in report
    for file in tmp_path.glob("*.json"):
        for key in (
            "config:rule.value.theta",
            "config:rule.value.threshold",
            "config:draft.value.length",
            "summary:answer_speedup",
            "summary:accuracy",
            "summary:distortion",
        ):
            assert key in file.read_text(), file


def test_dashboard_without_its_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("wandb_workspaces", "wandb_workspaces.reports.v2", "wandb_workspaces.workspaces"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main([f"out={tmp_path}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line == f"error: {dashboard.MISSING}"
