"""Answers of programs: scored where they can be run, stored until then; several samples of a
prompt."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from bench.config.paths import PROJECT, TINY
from bench.reports.plan import coinciding
from tests.helpers.ci import needs_bubblewrap
from tests.helpers.rehearsal.rows import ROWS, write_rows
from tests.helpers.summaries import written

PATH = os.environ["PATH"]


@needs_bubblewrap
def test_stored_answers_are_scored_by_the_same_command(command, tmp_path, path, caplog):
    file = write_rows(tmp_path, "humaneval_completion")
    words = f"task=humaneval_completion task.path={file} n=2 method=sps timed=2 workers=1"
    path(str(tmp_path))
    first = command(words)
    assert caplog.text.count("answers are stored without a score: there is no `bwrap`") == 1
    stored, summary = first.cell.samples(), written(first.cell)
    assert {(sample.unscored, sample.score, sample.answer) for sample in stored} == {
        (True, None, None)
    }
    assert summary.accuracy is None and summary.unscored == 4, "those of the baseline too"
    assert command(words).cell.samples() == stored, "as long as nothing can be run"
    path(PATH)
    then = command(words)
    scored, summary = then.cell.samples(), written(then.cell)
    assert "2 stored answers scored" in then.out
    for sample, before in zip(scored, stored, strict=True):
        assert (sample.unscored, sample.score) == (False, 0.0) and sample.answer
        assert sample.output_ids == before.output_ids, "nothing is decoded again"
    assert summary.accuracy == 0.0 and not summary.unscored
    assert then.cell.timed() == first.cell.timed()
    assert "stored answers scored" not in command(words).out


@needs_bubblewrap
@pytest.mark.parametrize("method", ["ar", "sps"])
def test_an_answer_without_a_verdict_does_not_stop_the_others(command, path, tmp_path, method):
    """Three problems, of which the tests of the second cannot be run apart from a program: they
    hand it a function. Scored at once, it is a failed prompt; scored later, its answer stays."""
    rows = [dict(row) for row in ROWS["humaneval_completion"][:3]]
    rows[1]["test"] = "def check(candidate):\n    candidate(lambda: 1)\n"
    file = write_rows(tmp_path, "problems", rows)
    words = f"task=humaneval_completion task.path={file} n=3 workers=1 method={method}"
    at_once = command(words, store=tmp_path / "at_once", status=1)
    assert "a value of type function cannot be handed" in at_once.err
    scores = {sample.id: getattr(sample, "score", "failed") for sample in at_once.cell.samples()}
    assert scores == {"HumanEval/1": 0.0, "HumanEval/2": "failed", "HumanEval/3": 0.0}
    path(str(tmp_path))
    command(words)
    path(PATH)
    for number in (2, 0):
        later = command(words, status=1)
        assert f"{number} stored answers scored" in later.out
        [line] = later.err.splitlines()
        assert "a value of type function cannot be handed" in line
        stored = {sample.id: sample.score for sample in later.cell.samples()}
        assert stored == scores | {"HumanEval/2": None}


def test_hundreds_of_answers_without_a_score_are_asked_for(command, tmp_path, path):
    path(str(tmp_path))
    of_numbers = command("task=mini_gsm method=sps dry_run=true n=200").out
    assert "needed before you start: nothing" in of_numbers
    row = ROWS["humaneval_completion"][0]
    rows = [row | {"task_id": f"HumanEval/{number}"} for number in range(60)]
    file = write_rows(tmp_path, "problems", rows)
    words = f"task=humaneval_completion task.path={file} method=sps workers=1"
    words += " decoding.max_new_tokens=1"
    shown = command(words, "n=null dry_run=true").out
    assert "bubblewrap, or humaneval_completion will have no score (score=later): " in shown
    [line] = command(words, "n=null", status=2).err.splitlines()
    assert "120 answers would be stored without a score: score=later allows it" in line
    assert "apt install bubblewrap" in line
    assert not (tmp_path / "store").exists()
    command(words, "n=49")  # 98 with those of the baseline
    command(words, "n=null")  # 22 more
    allowed = command(words, "n=50 score=later", store=tmp_path / "another").cell
    assert [sample.unscored for sample in allowed.samples()] == [True] * 50


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("task=komt_bench", True),
        ("task=mt_bench", False),
        ("task=mt_bench task.path={rows}", True),
        ("task=komt_bench judge.references={rows}", False),
    ],
)
def test_the_dry_run_names_the_references_of_a_judge(command, tmp_path, words, needed):
    turns = {"turns": ["1+1?", "2+2?"], "choices": [{"index": 0, "turns": ["2", "4"]}]}
    rows = write_rows(tmp_path, "rows", [{"question_id": 81, "category": "math", **turns}])
    shown = command(words.replace("{rows}", str(rows)), "method=sps dry_run=true n=1")
    assert ("judge.references=FILE" in shown.out) == needed


def test_the_projects_own_models_alone_need_no_bubblewrap(command, tmp_path, path, caplog):
    """Another model in the place of one of them does."""
    path(str(tmp_path))
    words = "task=mini_code method=ar n=2"
    own = command("pair=tiny", words, "decoding.max_new_tokens=96").cell
    assert all(sample.score is not None for sample in own.samples())
    assert "run as plain processes" in caplog.text
    other = command(words, f"pair.draft={TINY / 'draft'}", store=tmp_path / "other").cell
    assert all(sample.unscored for sample in other.samples())


@needs_bubblewrap
def test_several_samples_of_a_prompt_give_pass_at_k(command, tmp_path):
    file = write_rows(tmp_path, "humaneval_completion")
    words = f"task=humaneval_completion task.path={file} task.samples=4 task.pass_at=4"
    cell = command(words, "n=2 method=sps decoding.temperature=1").cell
    samples, summary = sorted(cell.samples(), key=lambda sample: sample.id), written(cell)
    assert [sample.group for sample in samples] == ["HumanEval/1"] * 4 + ["HumanEval/2"] * 4
    streams = {tuple(sample.output_ids) for sample in samples[:4]}
    assert len(streams) > 1, "each sample draws from its own stream"
    assert summary.metric == "pass@4" and summary.accuracy == 0.0
    assert all(sample.answer for sample in samples), "why it failed"


def test_a_relative_path_starts_at_the_checkout_and_outside_it_here(command, tmp_path, monkeypatch):
    file = write_rows(tmp_path, "gsm8k")
    words = "task=gsm8k method=sps dry_run=true"
    monkeypatch.chdir(PROJECT / "tests")
    command(words, f"task.path={os.path.relpath(file, PROJECT)}")
    monkeypatch.chdir(tmp_path)
    command(words, "task.path=gsm8k.jsonl")


def test_answers_that_coincide_are_counted_beside_pass_at_k():
    def answered(item: str, *texts: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(item=item, texts=[text]) for text in texts]

    assert coinciding(
        [*answered("a", "1", "1", "1", "1"), *answered("b", "1", "2", "2", "3")], 4
    ) == ("pass@4 of 8 answers to 2 problems, of which 4 are distinct",)
    assert coinciding(answered("a", "1", "2"), 2) == ()
