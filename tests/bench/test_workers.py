"""The quality pass in several processes: the same samples however many there are, whatever their batch, and however
often one of them is killed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench.run import quality
from bench.run.pool import MOST_DEATHS
from bench.run.quality import worker_count
from methods.engine.device import DEFAULT_THREADS
from results.store.cells import CellFolder, Store
from results.store.sample import Sample
from tests.helpers import dying
from tests.helpers.summaries import failed_samples, written

GIVEN = ("-m", "method=sps,mars_sampling", "decoding.temperature=1", "decoding.max_new_tokens=12", "timed=2")


def samples_of(root: Path) -> dict[str, list[Sample]]:
    """Every sample of every cell, sorted by id, each once; likelihoods, whose last digits depend on the batch,
    rounded."""
    found = {}
    for cell in Store(root).cells():
        lines = (cell.path / "samples.jsonl").read_bytes().splitlines()
        assert len(lines) == len(cell.good_samples()), "nothing is doubled, nothing failed"
        found[cell.key] = sorted((
            replace(sample, nll=round(sample.nll, 3), distortion=None) for sample in cell.good_samples()),
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
@pytest.mark.parametrize("victim", ["worker", "forkserver"])
def test_a_killed_process_of_workers_loses_nothing(command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                   victim: str) -> None:
    given = (*GIVEN[1:], "n=4", "quality_batch=2")
    with monkeypatch.context() as patch:
        patch.setattr(CellFolder, "append", CellFolder.append)  # undone behind this block
        dying.after(3, lambda: dying.kill(victim))
        assert command(*given, "workers=2", flags=["-m"], store=tmp_path / "killed").status == 0
    whole = command(*given, flags=["-m"], store=tmp_path / "whole")
    assert whole.status == 0 and samples_of(tmp_path / "killed") == samples_of(tmp_path / "whole")


def test_how_many_workers() -> None:
    assert worker_count(None, {"cpu"}, 1) == worker_count(None, {"cpu"}, 0) == 1
    assert worker_count(None, {"cpu"}, 1000) == DEFAULT_THREADS
    assert worker_count(4, {"cpu"}, 1000) == 4 and worker_count(4, {"cpu"}, 3) == 3


def test_a_prompt_that_kills_its_worker_fails_alone(command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real workers, which die whenever they are given the second of four prompts."""
    monkeypatch.setattr(quality, "loaded_worker", dying.worker_of_the_quality_pass)
    result = command("method=sps", "n=4", "timed=0", "workers=2", "quality_batch=4")
    [failed] = failed_samples(result.cell)
    assert failed.id.endswith("-00001") and len(result.cell.good_samples()) == 3
    assert failed.error == (f"{MOST_DEATHS} workers died while they decoded it (the last: exit status 9); is there "
                            "enough memory?")
