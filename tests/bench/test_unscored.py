"""Where programs cannot be run, answers are stored without a score; the same command scores them where they can."""

from __future__ import annotations

import os

import pytest

from bench.config.paths import TINY
from bench.rehearsal.rows import write_rows
from tasks.sandbox import run as sandbox
from tests.helpers.summaries import written

NEEDS_BUBBLEWRAP = pytest.mark.skipif(sandbox.bubblewrap_fault() is not None,
                                      reason=f"bubblewrap does not work here: {sandbox.bubblewrap_fault()}")
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
    words = (f"task.path={write_rows(tmp_path, 'humaneval_completion')}", "task=humaneval_completion", "n=2",
             "method=sps", "timed=2", "workers=1")
    path(str(tmp_path))
    first = command(*words)
    assert first.status == 0, first.err
    assert caplog.text.count("answers are stored without a score, for programs cannot be run: there is no `bwrap`") == 1
    stored, summary = first.cell.samples(), written(first.cell)
    assert [(one.unscored, one.score, one.answer) for one in stored] == [(True, None, None)] * 2
    assert summary.accuracy is None and summary.unscored == 4, "those of the baseline too"
    again = command(*words)
    assert again.status == 0 and again.cell.samples() == stored, "as long as nothing can be run, nothing changes"
    path(PATH)
    then = command(*words)
    scored = then.cell.samples()
    assert then.status == 0 and "2 stored answers scored" in then.out
    assert [(one.unscored, one.score) for one in scored] == [(False, 0.0)] * 2 and all(one.answer for one in scored)
    assert [one.output_ids for one in scored] == [one.output_ids for one in stored], "nothing is decoded again"
    assert written(then.cell).accuracy == 0.0 and not written(then.cell).unscored
    assert then.cell.timed() == first.cell.timed()
    assert "stored answers scored" not in command(*words).out


def test_the_projects_own_models_need_no_bubblewrap(command, tmp_path, path, caplog):
    path(str(tmp_path))
    own = command("pair=tiny", "task=mini_code", "method=ar", "n=2", "timed=0", "decoding.max_new_tokens=96")
    assert own.status == 0, own.err
    assert all(one.score is not None for one in own.cell.samples()) and "run as plain processes" in caplog.text


def test_a_model_in_the_place_of_the_projects_own_does(command, tmp_path, path):
    path(str(tmp_path))
    other = command("task=mini_code", "method=ar", "n=2", "timed=0", f"pair.draft={TINY / 'draft'}",
                    store=tmp_path / "other")
    assert other.status == 0, other.err
    assert all(one.unscored for one in other.cell.samples())
