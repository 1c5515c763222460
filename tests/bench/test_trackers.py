"""The tracker: what W&B's own client writes offline, and that no fault of the service hurts a
command; the dashboard as a file."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import wandb
from wandb.proto.wandb_internal_pb2 import Record

from bench.dashboard import MISSING, main
from bench.run.trackers import judged_rows
from tests.helpers.summaries import written


@pytest.fixture
def client(tmp_path, monkeypatch) -> Iterator[Path]:
    """Where the client keeps its files."""
    folder = tmp_path / "client"
    folder.mkdir()
    for name in ("DIR", "CACHE_DIR", "DATA_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(folder))
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    wandb.teardown()  # it keeps what it has read of the environment
    yield folder
    wandb.teardown()


def records(content: bytes) -> Iterator[bytes]:
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


def runs(client: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Id -> the run and its summary, as the client wrote them offline."""
    read = {}
    for file in client.glob("wandb/offline-run-*/*.wandb"):
        logged = list(map(Record.FromString, records(file.read_bytes())))
        told = [record.run for record in logged if record.WhichOneof("record_type") == "run"]
        run = told[-1]  # the client tells it again as it learns more
        items = [item for record in logged for item in record.summary.update]
        read[run.run_id] = (
            run,
            {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items},
        )
    return read


@pytest.mark.slow
def test_a_sweep_is_a_run_a_point(command, client, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    words = "+sweep=mars_theta tracker=wandb task=mini_gsm method=mars rule.theta=0.9"
    result = command(words, "timed=1 n=1 decoding.max_new_tokens=8")
    assert result.err == ""
    out = tmp_path / "out" / "sweep" / "mars_theta"
    assert (out / "sweep_mars_theta.png").stat().st_size > 5000
    assert "theta = 0.9" in (out / "sweep_mars_theta.csv").read_text()
    assert words in (out / "index.html").read_text()
    read = runs(client)
    assert set(read) == {cell.key for cell in result.cells} | {"report-sweep_mars_theta"}
    names = {run.display_name for run, _ in read.values()}
    assert {f"mars algorithm1 θ=0.9 K={K} mini_gsm t=1" for K in (7, 10)} < names
    assert {run.run_group for run, _ in read.values()} == {"sweep_mars_theta"}
    for cell in result.cells:
        run, summary = read[cell.key]
        assert set(run.tags) >= {"mars", "algorithm1", "mini_gsm", "t=1", "sweep_mars_theta"}
        config = {item.key: json.loads(item.value_json) for item in run.config.update}
        assert config["rule"]["theta"] == 0.9
        assert config["environment"]["torch"] and config["environment"]["cpu"]
        metrics = written(cell)
        for name in ("tau", "speedup", "accuracy", "distortion"):
            assert getattr(metrics, name) is not None and summary[name] == getattr(metrics, name)
    parts = {name.partition(".")[0] for name in read["report-sweep_mars_theta"][1]}
    assert parts >= {"sweep_mars_theta", "sweep_mars_theta_numbers"}


@pytest.mark.parametrize("hangs", [True, False], ids=["accepts and never answers", "refuses"])
def test_a_service_that_is_away_costs_one_line(command, client, monkeypatch, caplog, hangs):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    caplog.set_level(logging.WARNING)
    with socket.socket() as server:  # nobody else gets its port meanwhile
        server.bind(("127.0.0.1", 0))
        if hangs:
            server.listen()
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        result = command("-m method=sps,pld tracker=wandb tracker.timeout=1")
    assert [written(cell).n for cell in result.cells] == [3, 3]
    [line] = [said for said in caplog.messages if "logging disabled" in said]
    assert line.startswith("wandb: logging disabled from ") and "are in the store" in line


def test_the_rows_that_are_judged_stand_in_one_table():
    """A line a row: those of a report's further tables say the same; lossless rows have no
    verdict."""
    lines = [
        ("controls", "a", "tau", "5.0", ""),
        ("controls", "a", "equal_d_speed", "1.1", "gain"),
        ("controls_verdict", "a", "equal_d_speed", "1.1", "gain"),
        ("controls_verdict", "a", "equal_d_distortion", "0.2", ""),
        ("controls", "lossless", "equal_d_speed", "1.0", ""),
    ]
    numbers = pd.DataFrame(lines, columns=["report", "Rule", "value_name", "value", "verdict"])
    [row] = judged_rows(numbers.assign(ci_low="1.0", ci_high="1.2")).to_dict("records")
    assert (row["Rule"], row["verdict"], row["equal_d_speed"]) == ("a", "gain", "1.1")
    assert row["equal_d_distortion"] == "0.2"
    assert judged_rows(numbers.drop(columns="verdict")).empty


def test_dashboard_as_a_file_needs_no_service(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert main([f"out={tmp_path}"]) == 0
    text = (tmp_path / "workspace.json").read_text()
    sections = json.loads(text)["section"]["panelBankConfig"]["sections"]
    assert len(sections) > 4 and all(section["panels"] for section in sections)
    keys = "summary:distortion summary:tau summary:accuracy config:rule.value.theta"
    for key in f"{keys} config:draft.value.length sweep_mars_theta newer_rules_verdicts".split():
        assert key in text, key


def test_dashboard_without_its_library(monkeypatch, capsys, tmp_path):
    for name in ("wandb_workspaces", "wandb_workspaces.reports.v2", "wandb_workspaces.workspaces"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main([f"out={tmp_path}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line == f"error: {MISSING}"
