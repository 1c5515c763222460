"""Real benchmarks through the whole command, on the small untrained pair: right machinery, no right answers."""

from __future__ import annotations

import os
from types import SimpleNamespace

from bench.config.paths import PROJECT
from bench.rehearsal.rows import write_rows
from bench.reports.plan import coinciding
from tests.helpers.summaries import written


def test_several_samples_of_a_prompt_give_pass_at_k(command, tmp_path):
    result = command(f"task.path={write_rows(tmp_path, 'humaneval_completion')}", "task=humaneval_completion", "n=2",
                     "task.samples=4", "task.pass_at=4", "method=sps", "decoding.temperature=1")
    assert result.status == 0, result.err
    samples, summary = sorted(result.cell.samples(), key=lambda one: one.id), written(result.cell)
    assert [one.group for one in samples] == ["HumanEval/1"] * 4 + ["HumanEval/2"] * 4
    assert len({tuple(one.output_ids) for one in samples[:4]}) > 1, "each sample draws from its own stream"
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

    assert coinciding([*answered("a", "1", "1", "1", "1"), *answered("b", "1", "2", "2", "3")], 4) == (
        "pass@4 of 8 answers to 2 problems, of which 4 are distinct",)
    assert coinciding(answered("a", "1", "2"), 2) == ()
