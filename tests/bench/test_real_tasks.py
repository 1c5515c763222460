"""report=real_tasks on the included benchmarks, and on hand-written rows in the layout of the local files it names."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from bench.config.compose import composer
from bench.reports.plan import plan_of
from bench.reports.run import load_report
from tests.helpers.dataset_rows import write_rows

METHODS = ("[{label: Autoregressive, overrides: ['method=ar'], baseline: true}, "
           "{label: SpS, overrides: ['method=sps']}, {label: MARS, overrides: ['method=mars']}]")
TASKS = ["MT-bench", "HumanEval", "GSM8K", "Alpaca", "CNN/DM, short"]


def written(folder: Path) -> Path:
    """The files that conf/report/real_tasks.yaml reads; the second article is longer than what the pair is asked."""
    articles = ["Three ships left the port.", "A ship left. " * 300, "Two ships left.", "No ship left."]
    asked = [{"question_id": n, "category": "summarization", "turns": [f"Summarize: {text}"],
              "reference": ["Ships left."]} for n, text in enumerate(articles)]
    birds = [{"question_id": n, "category": "", "turns": [f"Name {n} birds."], "reference": ["A crow."]}
             for n in range(3)]
    for name, rows in (("eagle/alpaca/question", birds), ("eagle/sum/question", asked)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_rows(folder, name, rows)
    return folder


def test_without_local_files_the_included_benchmarks_remain(tmp_path: Path) -> None:
    with composer() as hydra:
        plan = plan_of(load_report("real_tasks", hydra), hydra, ["engine.device=cpu", f"data={tmp_path}"])
    assert {task for *_, task in plan.cells} == set(TASKS[:3]) and not plan.refused
    assert {task for *_, task in plan.absent} == set(TASKS[3:])
    for (*_, task), reason in plan.absent.items():
        name = "eagle/alpaca/question.jsonl" if task == "Alpaca" else "eagle/sum/question.jsonl"
        assert reason.startswith(f"task.path={tmp_path / name}: no such file")


@pytest.mark.slow
def test_every_column_is_measured(command, tmp_path: Path) -> None:
    words = ["report=real_tasks", f"report.axes.Method={METHODS}", f"data={written(tmp_path / 'data')}"]
    result = command(*words)
    assert result.status == 0, result.err
    rows = list(csv.DictReader((tmp_path / "out" / "report" / "real_tasks.csv").open()))
    tasks = list(dict.fromkeys(row["Task"] for row in rows if row["state"] == "measured"))
    assert tasks == TASKS and {row["n"] for row in rows if row["state"] == "measured"} == {"3"}
    numbers = {(row["Task"], row["Method"], row["value_name"]): row for row in rows}
    for task in TASKS:
        speedup, tau = (numbers[task, "SpS", name] for name in ("speedup", "tau"))
        assert float(speedup["ci_low"]) <= float(speedup["value"]) <= float(speedup["ci_high"])
        assert 1 <= float(tau["value"]) <= 8
        scored = bool(numbers[task, "SpS", "accuracy"]["value"])
        assert scored == (task in ("HumanEval", "GSM8K", "CNN/DM, short"))
    asked = {sample.id for cell in result.store.cells() if cell.config()["task"]["name"] == "cnn_dm"
             for sample in cell.samples()}
    assert asked == {"0", "2", "3"}, "an article that is too long is not asked"
    page = (tmp_path / "out" / "report" / "index.html").read_text()
    assert "python -m bench report=real_tasks &#39;report.axes" in page and words[2] in page, "the whole command"
    assert "on the published benchmarks" in page and "pass@1 (HumanEval)" in page and "rouge" in page.lower()
