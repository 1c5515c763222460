"""Prompts that a worker's models read once: the answers are those of models that read each prompt."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest

from bench.commands.open_cell import OpenCell
from bench.run.engine import Engines
from bench.run.jobs import Job, done_here
from methods.engine.cache import Prefills
from methods.engine.language_model import LanguageModel
from results.store.sample import Sample


@pytest.fixture(scope="module")
def target() -> LanguageModel:
    """A copy that remembers nothing yet; the weights are shared."""
    return copy.copy(OpenCell.compose(["pair=tiny", "method=ar", "task=mini_chat"]).method.target)


@pytest.mark.parametrize(("method", "traced"), [("ar", False), ("sps", False), ("sps", True), ("eagle3", True)])
def test_answers_are_those_of_a_model_that_reads_each_prompt(method: str, traced: bool) -> None:
    """With the prompts of two tasks in turn, of which one has several turns, and in batches of other prompts."""
    jobs = []
    for task in ("mini_gsm", "mini_chat"):
        opened = OpenCell.compose(["pair=tiny", f"method={method}", f"task={task}", "decoding.temperature=1",
                                   "decoding.max_new_tokens=6"])
        prompts = opened.task.prompts(5, 0)
        job = Job(opened.cell, tuple(prompts), traced)
        jobs += [replace(job, prompts=tuple(some)) for some in (prompts[:4], prompts[1:4:2], prompts[::2])]
    remembering, reading = Engines(remember=True), Engines()
    for job in jobs:
        own, other = done_here(job, remembering), done_here(job, reading)
        assert own.failure is None and len(own.records) == len(job.prompts)
        for mine, others in zip(own.records, other.records, strict=True):
            assert isinstance(mine, Sample) and isinstance(others, Sample)
            assert replace(mine, nll=None) == replace(others, nll=None)
            assert mine.nll == pytest.approx(others.nll, rel=1e-4)


def test_half_of_the_memory_stays_free(target: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompts known so far go where another program takes the memory."""
    target.prefills = prefills = Prefills()
    free = SimpleNamespace(total=2**30, available=2**30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    target.prefill([[5, 6, 7]], target.new_cache(1, 32))
    assert prefills.recall([[5, 6, 7]], (), target.new_cache(1, 32)) is not None
    free.available = 2**29
    target.prefill([[8, 9]], target.new_cache(1, 32))
    assert prefills.recall([[5, 6, 7]], (), target.new_cache(1, 32)) is None
    assert prefills.recall([[8, 9]], (), target.new_cache(1, 32)) is None


def test_the_oldest_prompts_are_forgotten(target: LanguageModel) -> None:
    def known(row: list[int]) -> bool:
        return prefills.recall([row], (), target.new_cache(1, 32)) is not None

    target.prefills = None
    rows, cache = [[5, 6, 7], [8, 9, 10], [11, 12, 13]], target.new_cache(1, 32)
    one = target.prefill(rows[:1], cache)
    size = cache.store[:, 0, :3].nbytes + one.logits[0, 0].nbytes
    target.prefills = prefills = Prefills(most_bytes=2 * size)
    for row in (*rows[:2], rows[0], rows[2]):
        target.prefill([row], target.new_cache(1, 32))
    assert [known(row) for row in rows] == [True, False, True], "the first was asked for again"
    target.prefill([[1] * 20], target.new_cache(1, 32))
    assert [known(row) for row in (rows[0], [1] * 20)] == [True, False], "a prompt that does not fit is not kept"
