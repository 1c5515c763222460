"""The quality pass in several processes: the same samples however many there are, whatever their batch, and however
often one of them is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.config.compose import composer
from bench.config.paths import PROJECT
from bench.run.quality_pass import processes as workers
from bench.run.quality_pass.processes import MOST_DEATHS, Workers, worker_count
from bench.run.quality_pass.worker import Done, Job
from results.store.cells import Store
from results.store.sample import FailedSample, Sample
from tasks.base import Prompt
from tests.helpers.summaries import written

GIVEN = ("-m", "method=sps,mars_sampling", "decoding.temperature=1", "decoding.max_new_tokens=12", "timed=2")


def samples_of(root: Path) -> dict[str, list[Sample]]:
    """Every sample of every cell, sorted by id, each once; likelihoods, whose last digits depend on the batch,
    rounded."""
    found = {}
    for cell in Store(root).cells():
        lines = (cell.path / "samples.jsonl").read_bytes().splitlines()
        assert len(lines) == len(cell.good_samples()), "nothing is doubled, nothing failed"
        found[cell.key] = sorted((replace(sample, nll=round(sample.nll, 3)) for sample in cell.good_samples()),
                                 key=lambda sample: sample.id)
    return found


@pytest.mark.slow
def test_tokens_do_not_depend_on_workers_or_their_batch(command, tmp_path: Path) -> None:
    stores = {}
    for count, batch in ((1, 1), (1, 32), (2, 7)):
        store = tmp_path / f"{count}-{batch}"
        result = command(*GIVEN[1:], "n=9", f"workers={count}", f"quality_batch={batch}", flags=["-m"], store=store)
        assert result.status == 0, result.err
        [line] = re.findall(r"quality pass: (\d+) prompts in \d+ s, (\d) workers? (\d+)% busy", result.out)
        assert line[:2] == ("27", str(count)) and 0 < int(line[2]) < 110, "both methods and their baseline"
        stores[count, batch] = samples_of(store)
        assert {len(samples) for samples in stores[count, batch].values()} == {9}
        assert all(written(cell).repeatable == 1.0 for cell in result.cells)
    first, *others = stores.values()
    assert all(other == first for other in others)


@pytest.mark.slow
def test_killed_workers_and_parents_lose_nothing(command, pair, tmp_path: Path) -> None:
    """Each run asks for more prompts than the one before it, so that there is something to lose."""
    def run(n: int, *module: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *module, *GIVEN, *pair, f"n={n}", "workers=2", "quality_batch=2",
             f"store.dir={tmp_path / 'store'}", f"output.dir={tmp_path / 'out'}"],
            cwd=PROJECT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)

    for n, samples, victim in ((4, 3, "worker"), (8, 4, "self"), (12, 9, "forkserver")):
        done = run(n, "tests.helpers.dying", str(samples), victim)
        assert done.returncode == (-signal.SIGKILL if victim == "self" else 0), done.stderr
        assert "Traceback" not in done.stderr
    whole = command(*GIVEN[1:], "n=12", flags=["-m"], store=tmp_path / "whole")
    assert whole.status == 0 and samples_of(tmp_path / "store") == samples_of(tmp_path / "whole")


def test_how_many_workers() -> None:
    assert worker_count(None, {"cpu"}, 1) == worker_count(None, {"cpu"}, 0) == 1
    assert worker_count(None, {"cpu"}, 1000) == workers.DEFAULT_THREADS
    assert worker_count(4, {"cpu"}, 1000) == 4 and worker_count(4, {"cpu"}, 3) == 3


def test_a_worker_starts_once_the_killed_process_that_forks_them_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a moment the system refuses connections to it and yet counts it as running."""
    refusals = iter([EOFError(), *(ConnectionRefusedError() for _ in range(9))])

    class Process:
        def __init__(self, **_) -> None: ...

        def start(self) -> None:
            if (refusal := next(refusals, None)) is not None:
                raise refusal

    made = Workers(2)
    monkeypatch.setattr(made, "_context", SimpleNamespace(Pipe=made._context.Pipe, Process=Process))
    monkeypatch.setattr(workers, "PAUSE_S", 0.001)
    assert made._start(1).number == 1 and next(refusals, None) is None
    refusals = iter(ConnectionRefusedError() for _ in range(10**6))
    monkeypatch.setattr(workers, "MOST_STARTS", 3)
    with pytest.raises(ConnectionRefusedError):
        made._start(1)


class Dying:
    """Stands in for a process that dies of signal 9 whenever it is given the prompt "bad"."""

    exitcode, pid = -9, 7

    def join(self) -> None:
        pass


class Connection:
    """Answers with a sample's id for every prompt, and breaks at "bad" and without prompts."""

    def __init__(self) -> None:
        self.job: Job | None = None

    def send(self, job: Job) -> None:
        self.job = job

    def recv(self) -> Done:
        if not self.job.prompts or any(prompt.id == "bad" for prompt in self.job.prompts):
            raise EOFError
        return Done([FailedSample(prompt.id, "answered") for prompt in self.job.prompts])

    def close(self) -> None:
        pass


def test_a_prompt_that_kills_its_worker_fails_alone(pair: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with composer() as hydra:
        cell = hydra.point([*pair, "method=sps"]).cell
    monkeypatch.setattr(Workers, "_start", lambda self, number: workers.Worker(number, Dying(), Connection()))
    monkeypatch.setattr(Workers, "_stop", lambda self: None)
    monkeypatch.setattr(workers.pipes, "wait", list)
    jobs = iter([Job(cell, ()), Job(cell, (Prompt("a", text="a"), Prompt("bad", text="b"), Prompt("c", text="c")))])
    taken: dict[str, str] = {}
    loaded: list[Done] = []

    def take(job: Job, done: Done) -> None:
        if not job.prompts:
            loaded.append(done)
        taken.update((one.id, one.error) for one in done.records)

    Workers(2).run(lambda: next(jobs, None), take)
    assert loaded == [Done()], "whether the models can be loaded, the prompts show"
    assert taken["a"] == taken["c"] == "answered"
    assert taken["bad"].startswith(f"{MOST_DEATHS} workers died while they decoded it (the last: signal 9)")
