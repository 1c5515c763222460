"""Answers of programs: scored where they can be run, stored until then; several samples of a
prompt."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from bench.config.paths import PROJECT, TINY
from bench.rehearsal.rows import write_rows
from bench.reports.plan import coinciding
from tasks.sandbox import run as sandbox
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
