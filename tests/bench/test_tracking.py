"""Tracking is an extra: it logs what the store has, and whatever goes wrong with it the run is not hurt."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import wandb

from bench.config import tracking
from results.store.sample import FailedSample
from tests.helpers.synthetic_cells import compared, sample


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "_given_up", threading.Event())


def test_offline_run(command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    result = command("method=sps", "tracker=wandb")
    assert result.status == 0 and "logging disabled" not in result.err
    [run] = (tmp_path / "wandb").glob("offline-run-*")
    assert run.name.endswith(result.cell.key)
    [record] = run.glob("*.wandb")
    held = record.read_bytes()
    for word in (b"speedup", b"tau", b"lossless", b"prompt/tokens_per_s"):
        assert word in held
    [table] = run.rglob("*.table.json")
    rows = json.loads(table.read_text())
    assert rows["columns"] == list(tracking.PER_PROMPT)
    assert {row[0] for row in rows["data"]} == {sample.id for sample in result.cell.samples()}


@pytest.mark.parametrize("service", ["broken", "hanging"])
def test_run_is_not_hurt(command, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
                         service: str) -> None:
    tried = []

    def init(**settings):
        tried.append(settings["name"])
        if service == "hanging":
            time.sleep(30)
        raise ConnectionError("nobody\nthere")

    monkeypatch.setattr(wandb, "init", init)
    with caplog.at_level(logging.WARNING):
        result = command("method=sps,pld", "tracker=wandb", "tracker.timeout=0.2", flags=["-m"])
    assert result.status == 0 and [cell.summary().n for cell in result.cells] == [3, 3]
    [warning] = [record.getMessage() for record in caplog.records if record.name == "bench.config.tracking"]
    assert "\n" not in warning and ("nobody there" in warning or "no answer" in warning)
    assert len(tried) == 1, "it is not tried again"


def test_row_of_a_prompt() -> None:
    own = sample("a", [1] * 9, committed=[3, 5], accepted=[2, 4])
    measured = compared(own, sample("a", [1] * 8), decode_s=2.0, base_decode_s=4.0)
    row = tracking.per_prompt(measured)
    named = ("tokens", "tau", "accept_len", "tokens_per_s", "speedup")
    assert [row[name] for name in named] == [9, 4.0, 3.0, 4.5, 2.25]
    assert tracking.per_prompt(FailedSample("b", "no")) == {"id": "b", "error": "no"}
    assert "speedup" not in tracking.per_prompt(compared(own))
    assert not {"tokens_per_s", "decode_s"} & set(tracking.per_prompt(replace(measured, timed=None)))
