"""A killed run or worker: no sample is lost or doubled, and the results are those of one process,
whole."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bench.run import quality
from bench.run.models import ModelPool
from bench.run.pool import MOST_DEATHS
from bench.run.quality import JOBS_EACH, worker_count
from methods.engine.device import DEFAULT_THREADS
from results.store.cells import Store
from results.store.sample import Sample
from results.store.traces import TraceFolder
from tests.helpers import dying
from tests.helpers.commands import started
from tests.helpers.stores import doubled
from tests.helpers.summaries import failed_samples, written

pytestmark = pytest.mark.slow

N = 8


def samples_of(store: Store) -> dict[str, list[Sample]]:
    """Every sample of every cell, sorted by id; likelihoods, whose last digits depend on the batch,
    rounded."""
    return {
        cell.key: sorted(
            (
                replace(sample, nll=round(sample.nll, 3), distortion=None)
                for sample in cell.good_samples()
            ),
            key=lambda sample: sample.id,
        )
        for cell in store.cells()
    }


def lines(store: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in store.glob("*/samples.jsonl"))


@pytest.mark.parametrize(
    "methods", [("method=sps,mars_sampling",), ("method=eagle3", "drafter.total=8", "trace=true")]
)
def test_killed_run_goes_on(command, pair, tmp_path: Path, methods: tuple[str, ...]) -> None:
    settings = [
        *methods,
        f"n={N}",
        "timed=1",
        "decoding.temperature=1",
        "decoding.max_new_tokens=12",
        "quality_batch=2",
    ]
    killed = tmp_path / "killed"
    given = ("-m", *pair, *settings, f"store.dir={killed}", f"output.dir={tmp_path}")
    process = started("bench", *given, dies_after=N + 3)
    process.join()  # the baseline is complete, the first cell is not
    assert process.exitcode == -signal.SIGKILL
    assert lines(killed) == N + 3 and not list(killed.glob("*/summary.json"))
    counted = {
        file.parent.name: file.read_bytes().count(b"\n") for file in killed.glob("*/samples.jsonl")
    }
    begun = {
        file.parent.name
        for file in killed.glob("*/environment.json")
        if counted.get(file.parent.name, 0) < N or "-ar-" not in file.parent.name
    }  # the others lack their clock
    torn = killed / min(begun & set(counted) or counted) / "samples.jsonl"
    torn.write_bytes(
        torn.read_bytes() + b'{"id": "mini_gsm-test-000'
    )  # as if killed in the middle of a line

    resumed = command(*settings, flags=["-m"], store=killed)
    whole = command(*settings, flags=["-m"], store=tmp_path / "whole")
    assert resumed.status == whole.status == 0
    assert samples_of(resumed.store) == samples_of(whole.store)
    for cell in resumed.store.cells():
        assert len({sample.id for sample in cell.samples()}) == len(cell.samples()) == N
    earlier = {cell.path.name: len(cell.environment()["earlier"]) for cell in resumed.store.cells()}
    assert earlier == {name: int(name in begun) for name in earlier}, (
        "both runs of a cell are on record"
    )
    assert lines(killed) == len(resumed.store.cells()) * N


def test_killed_between_two_measuring_sessions(command, pair, tmp_path: Path) -> None:
    given = (
        "method=sps",
        "n=4",
        "timed=4",
        "sessions=2",
        "sessions_gap_s=600",
        "decoding.max_new_tokens=8",
    )
    process = started(
        "bench",
        *pair,
        *given,
        f"store.dir={tmp_path / 'store'}",
        f"output.dir={tmp_path}",
        dies_waiting=600,
    )
    process.join()
    assert process.exitcode == -signal.SIGKILL
    [file] = (tmp_path / "store").glob("*/timed.jsonl")
    before = file.read_bytes()
    result = command(*given, store=tmp_path / "store")
    assert result.status == 0 and before.count(b"\n") == 2 and file.read_bytes().startswith(before)
    assert len(result.cell.timed()) == 4


def measured(result, *names: str) -> list:
    """Numbers of the command's summary: decoded ones, which do not depend on the clock."""
    return [result.last_line[name] for name in names]


def test_more_prompts_extend_a_cell_and_fewer_read_it(
    command, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = "method=sps", "decoding.temperature=1", "summary=json", "timed=2"
    numbers = "n", "asked", "tau", "accuracy", "nll", "tokens", "cycles"
    first = command(*given, "n=4")
    four = first.cell.path / "samples.jsonl", measured(first, *numbers)
    lines = four[0].read_bytes()
    second = command(*given, "n=8")
    assert second.cell.key == first.cell.key and measured(second, "n", "asked") == [8, 8]
    assert four[0].read_bytes().startswith(lines) and len(four[0].read_bytes().splitlines()) == 8, (
        "only the new ones"
    )
    monkeypatch.setattr(ModelPool, "load", lambda pool, cell: pytest.fail("a model was loaded"))
    again = command(*given, "n=4")
    assert again.status == 0 and measured(again, *numbers) == four[1]
    assert again.last_line["phases"] == second.last_line["phases"], "the profile is kept"
    assert len(four[0].read_bytes().splitlines()) == 8
    assert measured(command(*given, "n=8"), *numbers) == measured(second, *numbers)


def test_a_trace_is_about_the_prompts_asked_for(command) -> None:
    given = (
        "method=mars_sampling",
        "decoding.temperature=1",
        "decoding.max_new_tokens=6",
        "trace=true",
        "quality_batch=2",
    )
    result = command(*given, "n=3")
    assert result.status == 0, result.err
    assert command(*given, "n=5").status == 0
    everything = TraceFolder(result.cell)
    times = {path.name: path.stat().st_mtime_ns for path in everything.path.glob("*.parquet")}
    assert len(times) == 3 and everything.frame()["prompt"].nunique() == 5
    assert command(*given, "n=3").status == 0
    assert times == {
        path.name: path.stat().st_mtime_ns for path in everything.path.glob("*.parquet")
    }
    ids = [sample.id for sample in result.cell.samples()][:3]
    assert set(TraceFolder(result.cell, ids).frame()["prompt"]) == set(ids)


def test_a_changed_sample_is_refused_until_its_line_is_removed(
    command, caplog: pytest.LogCaptureFixture
) -> None:
    first = command("method=sps")
    file, before = first.cell.path / "samples.jsonl", samples_of(first.store)
    rows = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(rows[0] + rows[1].replace(b'"output_ids": [', b'"output_ids": [1') + rows[2])
    refused = command("method=sps")
    [line] = refused.err.splitlines()
    assert refused.status == 2 and not caplog.text and file.parent.name in line
    assert "samples.jsonl line 2 is not a sample (changed since it was written" in line
    file.write_bytes(rows[0] + rows[2])
    assert command("method=sps").status == 0 and samples_of(Store(first.store.root)) == before


@pytest.mark.parametrize("change", ["samples.jsonl", "cell.yaml"])
def test_a_complete_cell_notices_what_became_of_its_baseline(command, change: str) -> None:
    first = command("method=sps")
    [baseline] = [
        cell for cell in first.store.cells() if cell.key == first.cell.config()["baseline"]
    ]
    before = samples_of(first.store)
    (baseline.path / change).unlink()
    assert command("method=sps").status == 0 and samples_of(Store(first.store.root)) == before


@pytest.mark.parametrize("change", ["removed", "a line removed", "the last line torn"])
def test_a_complete_cell_notices_samples_removed_behind_it(command, change: str) -> None:
    first = command("method=sps", "n=4")
    file, before = first.cell.path / "samples.jsonl", samples_of(first.store)
    rows = file.read_bytes().splitlines(keepends=True)
    left = {"a line removed": rows[:1] + rows[2:], "the last line torn": rows[:-1]}.get(change, [])
    file.unlink()
    if left:
        file.write_bytes(b"".join(left) + (rows[-1][:-9] if "torn" in change else b""))
    again = command("method=sps", "n=4")
    assert again.status == 0 and written(again.cell).n == 4
    assert samples_of(Store(first.store.root)) == before, "no sample lost, none twice"
    assert file.read_bytes().startswith(b"".join(left)), "what was left is not decoded again"


GIVEN = (
    "-m",
    "method=sps,mars_sampling",
    "decoding.temperature=1",
    "decoding.max_new_tokens=12",
    "timed=2",
)


def test_tokens_do_not_depend_on_workers_or_their_batch(command, tmp_path: Path) -> None:
    stores = {}
    for count, batch in ((1, 32), (2, 7)):
        store = tmp_path / f"{count}-{batch}"
        result = command(
            *GIVEN[1:],
            "n=9",
            f"workers={count}",
            f"quality_batch={batch}",
            flags=["-m"],
            store=store,
        )
        assert result.status == 0, result.err
        [line] = re.findall(r"quality pass: (\d+) prompts in \d+ s, (\d) workers?", result.out)
        assert line == ("27", str(count)), "both methods and their baseline"
        stores[count, batch] = samples_of(Store(store))
        assert {len(samples) for samples in stores[count, batch].values()} == {9}
        assert all(written(cell).repeatable == 1.0 for cell in result.cells)
    assert stores[1, 32] == stores[2, 7]


@pytest.mark.parametrize("victim", ["worker", "forkserver"])
def test_a_killed_process_of_workers_loses_nothing(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    given = (*GIVEN[1:], "n=4", "quality_batch=2")
    with monkeypatch.context() as patch:
        patch.setattr(
            quality, "loaded_worker", partial(dying.worker_that_kills, victim, tmp_path / "died")
        )
        assert command(*given, "workers=2", flags=["-m"], store=tmp_path / "killed").status == 0
    assert (tmp_path / "died").exists()
    whole = command(*given, flags=["-m"], store=tmp_path / "whole")
    assert whole.status == 0 and samples_of(Store(tmp_path / "killed")) == samples_of(whole.store)
    assert doubled(tmp_path / "killed") == ""


def test_how_many_workers() -> None:
    assert [worker_count(None, {"cpu"}, jobs) for jobs in (0, 2 * JOBS_EACH - 1, 1000)] == [
        1,
        1,
        DEFAULT_THREADS,
    ]
    assert [worker_count(4, {"cpu"}, jobs) for jobs in (3, 1000)] == [3, 4]


def test_a_prompt_that_kills_its_worker_fails_alone(
    command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real workers, which die whenever they are given the second of four prompts."""
    monkeypatch.setattr(quality, "loaded_worker", dying.worker_of_the_quality_pass)
    result = command("method=sps", "n=4", "timed=0", "workers=2", "quality_batch=4")
    [failed] = failed_samples(result.cell)
    assert failed.id.endswith("-00001") and len(result.cell.good_samples()) == 3
    assert failed.error == (
        f"{MOST_DEATHS} workers died while they decoded it (the last: exit status 9); is there "
        "enough memory?"
    )
