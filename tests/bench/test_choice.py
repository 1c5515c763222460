"""Rows of a report that choose their setting: whose clock they take, and their verdicts on a user's prompts."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.reports.choice import ChosenRow
from results.store.sample import Compared
from tests.helpers.synthetic_cells import compared, sample

IDS = [f"p{i:02}" for i in range(12)]


def answers(seconds: float, timed: int) -> list[Compared]:
    """Twelve prompts of ten cycles, so many of them timed, each with so many seconds."""
    pairs = [compared(sample(name, range(21), committed=[2] * 10, accepted=[1] * 10),
                      sample(name, range(21), committed=[1] * 20, accepted=[0] * 20), decode_s=seconds,
                      base_decode_s=1.0) for name in IDS]
    return [pair if i < timed else replace(pair, timed=None) for i, pair in enumerate(pairs)]


def row(pairs: list[Compared], clock: ChosenRow | None = None) -> ChosenRow:
    given: Any = {"spec": None, "choice": None, "cells": {("chain",): "cell"},
                  "grid": {("chain",): SimpleNamespace(summary=object())},
                  "session": SimpleNamespace(folder=lambda cell: SimpleNamespace(compared=lambda: pairs))}
    return ChosenRow(settings={"chain": ("chain",)}, clock=clock, **given)


@pytest.mark.parametrize(("own", "seconds"), [(0, 3.0), (1, 3.0), (3, 3.0), (4, 7.0), (12, 7.0)])
def test_a_few_prompts_that_another_report_timed_are_no_clock(own: int, seconds: float) -> None:
    """A row of the frontier borrows the clock of the row asked for, of four prompts, unless its own has as many."""
    asked = row(answers(3.0, timed=4))
    found = row(answers(7.0, timed=own), asked).records["chain"]
    clocks = [pair.timed.own.decode_s for pair in found if isinstance(pair, Compared) and pair.timed is not None]
    assert clocks == [seconds] * max(4, own) and [pair.id for pair in found] == IDS
    assert row(answers(7.0, timed=own)).records["chain"] == answers(7.0, timed=own), "without one to lend: its own"


@pytest.mark.slow
def test_relaxed_rows_have_a_verdict_beside_the_best_lossless_one(command, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(json.dumps({"id": str(i), "prompt": f"Tom has {i} apples and"}) for i in range(4)))
    result = command("report=workload", f"task.path={file}", "decoding.max_new_tokens=8", "timed=4",
                     "report.axes.K.values=[2]")
    assert result.status == 0, result.err
    rows = list(csv.DictReader((tmp_path / "out" / "report" / "workload.csv").open()))
    verdicts = {row["Method"]: row["verdict"] for row in rows if row["value_name"] == "equal_d_speed"}
    assert verdicts["SpS"] == verdicts["PLD"] == "", "lossless: there is nothing to decide"
    assert verdicts["MARS, θ = 0.9"] and verdicts["MARS, θ = 0.95"]


def test_without_prompts_it_says_what_to_bring(command) -> None:
    dry, run = (command("report=workload", *words) for words in (["dry_run=true", "scale=paper"], []))
    assert dry.status == 0 and "task.path" in dry.out
    assert run.status == 2 and "task.path" in run.err and len(run.err.splitlines()) == 1
