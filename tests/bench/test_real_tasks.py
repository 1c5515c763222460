"""report=real_tasks on hand-written rows in the layout of the local files that it names."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from tests.helpers.dataset_rows import ROWS, write_rows

pytestmark = pytest.mark.slow

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
    for name, rows in (("gsm8k/test", ROWS["gsm8k_mars"]), ("mt_bench/question", ROWS["mt_bench"]),
                       ("eagle/alpaca/question", birds), ("eagle/sum/question", asked)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_rows(folder, name, rows)
    (folder / "humaneval").mkdir()
    plain = write_rows(folder, "humaneval")
    (folder / "humaneval" / "HumanEval.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    return folder


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
