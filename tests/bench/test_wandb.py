"""Weights & Biases against a stand-in of its service: one run per cell and report, resumed, nothing lost with it."""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb

from bench import dashboard
from bench.config.settings import Wandb
from bench.dashboard import main
from bench.run.trackers import logbook
from bench.run.trackers.runs import About, Results, TrackerRun
from results.metrics.so_far import SoFar
from tests.helpers.summaries import written
from tests.helpers.wandb_service import WandbService

KEY = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbService]:
    """The stand-in; the client's files lie in tmp_path/client."""
    service = WandbService()
    (tmp_path / "client").mkdir()
    for name in ("DIR", "CACHE_DIR", "DATA_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path / "client"))
    monkeypatch.setenv("WANDB_BASE_URL", service.url)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(logbook, "EVERY_S", 0.02)
    wandb.teardown()  # it keeps what it has read of the environment
    yield service
    wandb.teardown()
    service.close()


def points(rows: list[dict]) -> list[dict]:
    return [row for row in rows if "live/prompts" in row]


def test_a_run_is_resumed_and_not_doubled(command, service: WandbService, tmp_path: Path) -> None:
    first = command("method=sps", "tracker=wandb", "trace=true")
    assert first.status == 0 and first.err == ""
    [name] = service.runs
    run = service.runs[name]
    assert name == first.cell.key and run.upserts[0]["jobType"] == "cell"
    assert json.loads(run.upserts[0]["config"])["rule"]["value"]["name"] == "lossless"
    so_far = SoFar.of(first.cell.good_samples())
    assert points(run.history)[-1]["live/prompts"] == 3 and points(run.history)[-1]["live/tau"] == so_far.tau
    assert run.summary["tau"] == written(first.cell).tau and run.summary["n"] == 3
    before = list(run.history)

    more = command("method=sps", "tracker=wandb", "trace=true", "n=5")
    assert list(service.runs) == [name], "the same run"
    assert run.history[:len(before)] == before and run.summary["n"] == 5
    assert points(run.history)[-1]["live/prompts"] == 5
    tables = [json.loads(content) for file, content in run.files.items() if file.endswith("table.json")]
    ids = {sample.id for sample in more.cell.samples()}
    assert {row[table["columns"].index("id")] for table in tables for row in table["data"]} == ids
    pages = [content.decode() for file, content in run.files.items() if file.endswith(".html")]
    assert pages and all("<span" in page and "drafted" in page for page in pages)

    before = list(run.history)
    assert command("method=sps", "tracker=wandb", "trace=true", "n=5").status == 0
    assert run.history == before, "nothing was measured, nothing is logged"

    sent = base64.b64encode(f"api:{KEY}".encode()).decode()
    assert any(sent in header for header in service.headers), "the key is sent"
    assert first.out + more.out + first.err + more.err and KEY not in first.out + more.out + first.err + more.err
    for file in tmp_path.rglob("*"):
        assert not (file.is_file() and KEY.encode() in file.read_bytes()), f"{file} holds the key"


def test_a_sweep_is_a_group_with_a_run_of_its_figure(command, service: WandbService) -> None:
    result = command("+sweep=draft_length", "task=mini_gsm", "draft.length=2,3", "tracker=wandb", "timed=0")
    assert result.status == 0 and result.err == ""
    groups = {name: run.upserts[0]["groupName"] for name, run in service.runs.items()}
    assert set(groups.values()) == {"sweep_draft_length"}
    reports = [name for name in groups if name.startswith("report-")]
    assert set(groups) - set(reports) == {cell.key for cell in result.cells}
    files = [file for name in reports for file in service.runs[name].files]
    assert any(file.endswith(".png") for file in files) and any(file.endswith(".table.json") for file in files)


def test_offline_runs_of_one_cell_are_uploaded_into_one(service: WandbService, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for prompts in (3, 5):  # in folders of their own, which wandb names by the second
        monkeypatch.setenv("WANDB_DIR", str(tmp_path / "client" / str(prompts)))
        (tmp_path / "client" / str(prompts)).mkdir()
        wandb.teardown()
        run = TrackerRun("wandb", About("cell", "cell", "controls", {}), Wandb(timeout=600))
        run.live({"prompts": prompts, "tau": 2.0})
        run.log(Results({"n": prompts}, [{"id": str(prompts)}]))
        run.finish()
    assert not service.operations
    monkeypatch.delenv("WANDB_MODE")
    folders = sorted(map(str, (tmp_path / "client").glob("*/wandb/offline-run-*")))
    subprocess.run([sys.executable, "-m", "wandb", "sync", *folders], check=True, capture_output=True)
    [uploaded] = service.runs.values()
    assert len(folders) == 2 and [row["live/prompts"] for row in points(uploaded.history)] == [3, 5]
    assert uploaded.summary["n"] == 5 and uploaded.upserts[0]["groupName"] == "controls"


def test_a_broken_service_costs_one_line(command, service: WandbService, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    service.failing = ("RunResumeStatus", "Viewer", "UpsertBucket")
    result = command("method=sps,pld", "tracker=wandb", "tracker.timeout=1", "timed=0", flags=["-m"])
    assert result.status == 0 and [written(cell).n for cell in result.cells] == [3, 3]
    [line] = caplog.messages
    assert "wandb: logging disabled from" in line and "all results are in the store" in line


def test_workspace_and_report(service: WandbService, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["entity=someone"]) == 0
    assert capsys.readouterr().out.count("http") == 2
    kinds = {view["type"]: json.loads(view["spec"]) for view in service.views}
    assert set(kinds) == {"project-view", "runs"}
    shown = json.dumps(kinds["project-view"]), json.dumps(kinds["runs"])
    for spec in shown:
        for key in ("config:rule.value.theta", "config:rule.value.threshold", "config:draft.value.length",
                    "summary:answer_speedup", "summary:accuracy", "summary:tau_gain_relaxed"):
            assert key in spec
    assert "sweep_mars_theta" in shown[1] and "controls" in shown[1] and "live/tau" in shown[0]


def test_dashboard_as_files_needs_no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert main([f"out={tmp_path}"]) == 0
    sections = json.loads((tmp_path / "workspace.json").read_text())["section"]["panelBankConfig"]["sections"]
    chapters = dashboard.chapters()
    assert [section["name"] for section in sections[1:]] == [chapter.title for chapter in chapters]
    assert all(section["panels"] for section in sections)
    assert len(list((dashboard.CONF / "sweep").glob("*.yaml"))) == len(chapters) - 2


def test_dashboard_without_its_library(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                       tmp_path: Path) -> None:
    for name in ("wandb_workspaces", "wandb_workspaces.reports.v2", "wandb_workspaces.workspaces"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main([f"out={tmp_path}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line == f"error: {dashboard.MISSING}"
