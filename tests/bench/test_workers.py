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

import pytest

from bench.config.paths import PROJECT
from bench.run import quality
from bench.run.pool import MOST_DEATHS
from bench.run.quality import worker_count
from methods.engine.clock import DEFAULT_THREADS
from results.store.cells import Store
from results.store.sample import Sample
from tests.helpers import dying
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
        [line] = re.findall(r"quality pass: (\d+) prompts in \d+ s, (\d) workers? \d+% busy", result.out)
        assert line == ("27", str(count)), "both methods and their baseline"
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
    assert worker_count(None, {"cpu"}, 1000) == DEFAULT_THREADS
    assert worker_count(4, {"cpu"}, 1000) == 4 and worker_count(4, {"cpu"}, 3) == 3


def test_a_prompt_that_kills_its_worker_fails_alone(command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real workers, which die whenever they are given the second of four prompts."""
    monkeypatch.setattr(quality, "loaded_worker", dying.worker_of_the_quality_pass)
    result = command("method=sps", "n=4", "timed=0", "workers=2", "quality_batch=4")
    [failed] = result.cell.failed_samples()
    assert failed.id.endswith("-00001") and len(result.cell.good_samples()) == 3
    assert failed.error == (f"{MOST_DEATHS} workers died while they decoded it (the last: exit status 9); is there "
                            "enough memory?")
