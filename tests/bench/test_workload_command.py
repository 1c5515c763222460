"""report=workload on a user's prompts: a table with the verdicts of every table; a fault of the file is one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest


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
