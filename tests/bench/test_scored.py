"""Answers of programs: scored where they can be run, stored until then; several samples of a
prompt."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from bench.config.paths import PROJECT, TINY
from bench.reports.plan import coinciding
from tasks.sandbox import run as sandbox
from tests.helpers.rehearsal.rows import ROWS, write_rows
from tests.helpers.summaries import written

NEEDS_BUBBLEWRAP = pytest.mark.skipif(
    sandbox.bubblewrap_fault() is not None,
    reason=f"bubblewrap does not work here: {sandbox.bubblewrap_fault()}",
)
PATH = os.environ["PATH"]


@pytest.fixture
def path(monkeypatch):
    """Sets PATH, on which bubblewrap is looked for."""

    def change(value: str) -> None:
        monkeypatch.setenv("PATH", value)
        sandbox.bubblewrap_fault.cache_clear()

    yield change
    monkeypatch.undo()
    sandbox.bubblewrap_fault.cache_clear()


@NEEDS_BUBBLEWRAP
def test_stored_answers_are_scored_by_the_same_command(command, tmp_path, path, caplog):
    words = (
        f"task.path={write_rows(tmp_path, 'humaneval_completion')}",
        "task=humaneval_completion",
        "n=2",
        "method=sps",
        "timed=2",
        "workers=1",
    )
    path(str(tmp_path))
    first = command(*words)
    assert first.status == 0, first.err
    assert caplog.text.count("answers are stored without a score: there is no `bwrap`") == 1
    stored, summary = first.cell.samples(), written(first.cell)
    assert [(one.unscored, one.score, one.answer) for one in stored] == [(True, None, None)] * 2
    assert summary.accuracy is None and summary.unscored == 4, "those of the baseline too"
    again = command(*words)
    assert again.status == 0 and again.cell.samples() == stored, (
        "as long as nothing can be run, nothing changes"
    )
    path(PATH)
    then = command(*words)
    scored = then.cell.samples()
    assert then.status == 0 and "2 stored answers scored" in then.out
    assert [(one.unscored, one.score) for one in scored] == [(False, 0.0)] * 2 and all(
        one.answer for one in scored
    )
    assert [one.output_ids for one in scored] == [one.output_ids for one in stored], (
        "nothing is decoded again"
    )
    assert written(then.cell).accuracy == 0.0 and not written(then.cell).unscored
    assert then.cell.timed() == first.cell.timed()
    assert "stored answers scored" not in command(*words).out


@pytest.fixture
def no_verdict(tmp_path):
    """The words of a command on three problems, of which the tests of the second cannot be run
    apart from a program: they hand it a function."""
    rows = [dict(row) for row in ROWS["humaneval_completion"][:3]]
    rows[1]["test"] = "def check(candidate):\n    candidate(lambda: 1)\n"
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"task.path={file}", "task=humaneval_completion", "n=3", "workers=1"


@NEEDS_BUBBLEWRAP
@pytest.mark.parametrize("method", ["ar", "sps"])
def test_an_answer_without_a_verdict_does_not_stop_the_others(
    command, path, tmp_path, no_verdict, method
):
    """Scored at once, it is a failed prompt; scored later, its answer stays."""
    at_once = command(*no_verdict, f"method={method}", store=tmp_path / "at_once")
    assert at_once.status == 1 and "a value of type function cannot be handed" in at_once.err
    scores = {one.id: getattr(one, "score", "failed") for one in at_once.cell.samples()}
    assert scores == {"HumanEval/1": 0.0, "HumanEval/2": "failed", "HumanEval/3": 0.0}
    path(str(tmp_path))
    assert command(*no_verdict, f"method={method}").status == 0
    path(PATH)
    for number in (2, 0):
        later = command(*no_verdict, f"method={method}")
        assert later.status == 1 and f"{number} stored answers scored" in later.out
        assert "a value of type function cannot be handed" in later.err
        assert len(later.err.splitlines()) == 1
        assert {one.id: one.score for one in later.cell.samples()} == scores | {"HumanEval/2": None}


def test_hundreds_of_answers_without_a_score_are_asked_for(command, tmp_path, path):
    path(str(tmp_path))
    row, file = ROWS["humaneval_completion"][0], tmp_path / "problems.jsonl"
    rows = [row | {"task_id": f"HumanEval/{number}"} for number in range(60)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = f"task.path={file}", "task=humaneval_completion", "method=sps", "workers=1"
    given += ("decoding.max_new_tokens=1",)
    shown = command(*given, "n=null", "dry_run=true")
    assert shown.status == 0
    assert "bubblewrap, or humaneval_completion will have no score (score=later): " in shown.out
    refused = command(*given, "n=null")
    assert refused.status == 2 and len(refused.err.splitlines()) == 1
    assert "120 answers would be stored without a score: score=later allows it" in refused.err
    assert "apt install bubblewrap" in refused.err
    assert not (tmp_path / "store").exists()
    few = command(*given, "n=49")
    assert few.status == 0, "98 with those of the baseline"
    assert command(*given, "n=null").status == 0, "22 more"
    allowed = command(*given, "n=50", "score=later", store=tmp_path / "another")
    assert allowed.status == 0 and [one.unscored for one in allowed.cell.samples()] == [True] * 50


def test_other_tasks_ask_for_nothing(command, tmp_path, path):
    path(str(tmp_path))
    shown = command("task=mini_gsm", "method=sps", "dry_run=true", "n=200")
    assert "needed before you start: nothing" in shown.out


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (("task=komt_bench",), True),
        (("task=mt_bench",), False),
        (("task=mt_bench", "task.path={rows}"), True),
        (("task=komt_bench", "judge.references={rows}"), False),
    ],
)
def test_the_dry_run_names_the_references_of_a_judge(command, tmp_path, words, needed):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        '{"question_id": 81, "category": "math", "turns": ["1+1?", "2+2?"], "choices": '
        '[{"index": 0, "turns": ["2", "4"]}]}\n'
    )
    given = [word.replace("{rows}", str(rows)) for word in words]
    shown = command(*given, "method=sps", "dry_run=true", "n=1")
    assert shown.status == 0, shown.err
    assert ("judge.references=FILE" in shown.out) == needed


def test_the_projects_own_models_need_no_bubblewrap(command, tmp_path, path, caplog):
    path(str(tmp_path))
    own = command(
        "pair=tiny", "task=mini_code", "method=ar", "n=2", "timed=0", "decoding.max_new_tokens=96"
    )
    assert own.status == 0, own.err
    assert (
        all(one.score is not None for one in own.cell.samples())
        and "run as plain processes" in caplog.text
    )


def test_a_model_in_the_place_of_the_projects_own_does(command, tmp_path, path):
    path(str(tmp_path))
    other = command(
        "task=mini_code",
        "method=ar",
        "n=2",
        "timed=0",
        f"pair.draft={TINY / 'draft'}",
        store=tmp_path / "other",
    )
    assert other.status == 0, other.err
    assert all(one.unscored for one in other.cell.samples())


@NEEDS_BUBBLEWRAP
def test_several_samples_of_a_prompt_give_pass_at_k(command, tmp_path):
    result = command(
        f"task.path={write_rows(tmp_path, 'humaneval_completion')}",
        "task=humaneval_completion",
        "n=2",
        "task.samples=4",
        "task.pass_at=4",
        "method=sps",
        "decoding.temperature=1",
    )
    assert result.status == 0, result.err
    samples, summary = sorted(result.cell.samples(), key=lambda one: one.id), written(result.cell)
    assert [one.group for one in samples] == ["HumanEval/1"] * 4 + ["HumanEval/2"] * 4
    assert len({tuple(one.output_ids) for one in samples[:4]}) > 1, (
        "each sample draws from its own stream"
    )
    assert summary.metric == "pass@4" and summary.accuracy == 0.0
    assert all(one.answer for one in samples), "why it failed"


def test_a_relative_path_starts_at_the_checkout(command, tmp_path, monkeypatch):
    file = write_rows(tmp_path, "gsm8k")
    monkeypatch.chdir(tmp_path)
    words = "task=gsm8k", "method=sps", "dry_run=true"
    assert command(*words, f"task.path={os.path.relpath(file, PROJECT)}").status == 0
    assert "task.path=gsm8k.jsonl: no such file" in command(*words, "task.path=gsm8k.jsonl").err


def test_answers_that_coincide_are_counted_beside_pass_at_k():
    def answered(item: str, *texts: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(item=item, texts=[text]) for text in texts]

    assert coinciding(
        [*answered("a", "1", "1", "1", "1"), *answered("b", "1", "2", "2", "3")], 4
    ) == ("pass@4 of 8 answers to 2 problems, of which 4 are distinct",)
    assert coinciding(answered("a", "1", "2"), 2) == ()
