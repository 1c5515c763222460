"""report=workload on the small pair: text, page and JSON from one store; every fault of the user's file is one line."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from bench.config.paths import CONF
from bench.run.models import ModelPool

pytestmark = pytest.mark.slow

PROMPTS = [{"id": str(i), "prompt": f"Tom has {i} apples."} for i in range(3)]
SMALL = ("report=workload", "report.lengths=[2]", "report.methods.mars.values=[0.5]", "report.min_prompts=2")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, PROMPTS)))
    return file


def test_text_page_and_json(command, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = command(*SMALL, f"task.path={prompts}", "decoding.max_new_tokens=8")
    assert result.status == 0, result.err
    assert {cell.config()["draft"]["length"] for cell in result.cells} == {2} and len(result.cells) == 3
    written = json.loads((tmp_path / "out" / "workload" / "workload.json").read_text())
    settings = {one["label"]: one for one in written["settings"]}
    assert set(settings) == {"SpS, K = 2", "PLD, K = 2", "MARS, θ = 0.5, K = 2"}
    assert settings["SpS, K = 2"]["exact"] and settings["SpS, K = 2"]["precision"] == 1.0
    mars = settings["MARS, θ = 0.5, K = 2"]
    assert not mars["exact"] and mars["quality_loss"] == pytest.approx(1 - mars["edit_similarity"])
    parts = written["components"]["SpS, K = 2"]
    assert parts["cycle_ms"] > parts["draft_ms"] > 0 and parts["verify_ms"] > 0 and parts["token_ms"] > 0
    page = (tmp_path / "out" / "workload" / "index.html").read_text()
    headline = written["advice"]["headline"]
    assert headline.split(":")[0] in page and "Cost of a cycle" in page and "<svg" in page
    assert headline[:60] in result.out and " ".join(written["advice"]["overrides"]) in result.out
    assert "all 3 settings together" in page and "98.33%" in result.out and written["level_alone"] == 0.95
    assert all(one["items"] == 3 and one["together"]["speedup"] for one in settings.values())
    monkeypatch.setattr(ModelPool, "method", lambda pool, cell: pytest.fail("a model was loaded"))
    again = command(*SMALL, f"task.path={prompts}", "decoding.max_new_tokens=8", "summary=json")
    assert again.status == 0 and again.last_line["settings"] == written["settings"], "the store holds all"
    line = written["advice"]["command"]
    assert line in result.out and line.startswith("python -m bench task=prompts n=3 ") and "report" not in line
    assert line.endswith(" ".join(written["advice"]["overrides"])) and "decoding.max_new_tokens=8" in line
    point = command(*shlex.split(line)[3:], "dry_run=true")
    best = next(one for one in written["settings"] if one["label"] == written["advice"]["best"])
    assert point.status == 0 and f"identity: {best['cell'].rpartition('-')[2]}" in point.out, point.err


def test_the_documented_questions_are_scored(command, tmp_path: Path) -> None:
    """docs/options.md: five prompts, their answers, a verdict; and the command that the verdict names can be given."""
    page = (CONF.parent / "docs" / "options.md").read_text()
    [rows] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    [line] = [line for line in page.splitlines() if "task.path=questions.jsonl" in line]
    (file := tmp_path / "questions.jsonl").write_text(rows)
    words = [f"task.path={file}" if word == "task.path=questions.jsonl" else word for word in shlex.split(line)[3:]]
    result = command(*words, *SMALL[1:], "decoding.max_new_tokens=8", "timed=2")
    assert result.status == 0, result.err
    written = json.loads((tmp_path / "out" / "workload" / "workload.json").read_text())
    assert written["quality"]["plain_right"] == 0 and all(one["accuracy"] == 0 for one in written["settings"])
    assert written["advice"]["headline"][:40] in result.out


def test_a_method_is_added_as_the_yaml_says(command, prompts: Path) -> None:
    lines = (CONF / "report" / "workload.yaml").read_text().splitlines()
    [word] = shlex.split(next(line for line in lines if "+report.methods" in line).removeprefix("#"))
    result = command(*SMALL, word, f"task.path={prompts}", "dry_run=true")
    assert result.status == 0 and "FSD, threshold = 0.2 / K = 2" in result.out, result.err


@pytest.mark.parametrize(("content", "words"), [
    (None, "no such file"), ("", "no rows"), ('{"id": "1"}', "line 1: needs exactly one of prompt"),
    ('{"id": "1", "prompt": "x"}\n{oh', "line 2: not valid JSON")])
def test_a_faulty_file_is_one_line(command, tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "prompts.jsonl"
    if content is not None:
        file.write_text(content)
    result = command(*SMALL, f"task.path={file}")
    [line] = result.err.splitlines()
    assert result.status == 2 and line.startswith("error: ") and words in line and "prompts.jsonl" in line


@pytest.mark.parametrize(("given", "words"), [
    (("report=workload",), "task.path: missing"),
    (("report=workload", "report.lengthz=[2]"), "did you mean report.lengths"),
    (("report=workload", "report.quality_loss=2"), "report.quality_loss=2"),
    (("report=all", "report.lengths=[2]"), "changes one report"),
])
def test_a_wrong_command_is_one_line(command, given: tuple[str, ...], words: str) -> None:
    result = command(*given)
    [line] = result.err.splitlines()
    assert result.status == 2 and words in line


def test_without_prompts_it_says_what_to_bring(command) -> None:
    dry, run = (command("report=workload", *words) for words in (["dry_run=true", "scale=paper"], []))
    assert dry.status == 0 and "task.path" in dry.out
    assert run.status == 2 and "task.path" in run.err and len(run.err.splitlines()) == 1
