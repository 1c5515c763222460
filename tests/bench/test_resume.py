"""A killed run or worker: no sample is lost or doubled, and the results are those of one process,
whole."""

from __future__ import annotations

import signal
from functools import partial

import pytest

from bench.run import quality
from bench.run.pool import MOST_DEATHS
from bench.run.quality import JOBS_EACH, worker_count
from methods.engine.device import DEFAULT_THREADS
from results.store.cells import Store
from tests.bench.conftest import MEASURED, Result
from tests.helpers import dying
from tests.helpers.commands import started
from tests.helpers.stores import answers, samples_of
from tests.helpers.summaries import failed_samples

pytestmark = pytest.mark.slow

N = 8


@pytest.mark.parametrize(
    "methods", [("method=sps,mars_sampling",), ("method=eagle3", "drafter.total=8", "trace=true")]
)
def test_killed_run_goes_on(command, pair, tmp_path, methods):
    settings = *methods, f"n={N}", "timed=1", "decoding.temperature=1", "quality_batch=2"
    killed = tmp_path / "killed"
    places = f"store.dir={killed}", f"output.dir={tmp_path}", "decoding.max_new_tokens=12"
    process = started("bench", "-m", *pair, *settings, *places, dies_after=N + 3)
    process.join()  # the baseline is complete, the first cell is not
    assert process.exitcode == -signal.SIGKILL
    counts = {name: text.count("\n") for name, text in answers(killed).items()}
    assert sum(counts.values()) == N + 3 and not list(killed.glob("*/summary.json"))
    recorded = {file.parent.name for file in killed.glob("*/environment.json")}
    begun = {
        name for name in recorded if counts.get(name, 0) < N or "-ar-" not in name
    }  # the others lack their clock
    torn = killed / min(begun & set(counts) or counts) / "samples.jsonl"
    with torn.open("a") as file:
        file.write('{"id": "mini_gsm-test-000')  # as if killed in the middle of a line

    resumed = command("-m", *settings, store=killed)
    whole = command("-m", *settings, store=tmp_path / "whole")
    assert samples_of(resumed.store) == samples_of(whole.store)
    for cell in resumed.store.cells():
        assert len({sample.id for sample in cell.samples()}) == len(cell.samples()) == N
        earlier = len(cell.environment()["earlier"])
        assert earlier == (cell.key in begun), "both runs of a cell are on record"
    assert {text.count("\n") for text in answers(killed).values()} == {N}


def test_killed_between_two_measuring_sessions(command, pair, tmp_path):
    words = "method=sps", "n=4", "timed=4", "sessions=2", "sessions_gap_s=600"
    store = tmp_path / "store"
    places = f"store.dir={store}", f"output.dir={tmp_path}", "decoding.max_new_tokens=12"
    process = started("bench", *pair, *words, *places, dies_waiting=600)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    [file] = store.glob("*/timed.jsonl")
    before = file.read_bytes()
    result = command(*words)
    assert before.count(b"\n") == 2 and file.read_bytes().startswith(before)
    assert len(result.cell.timed()) == 4


def test_more_prompts_extend_a_cell_and_fewer_read_it(command, no_models):
    decoded = "n", "asked", "tau", "accuracy", "nll", "tokens", "cycles"

    def measured(prompts: int) -> Result:
        return command("method=sps decoding.temperature=1 summary=json timed=2", f"n={prompts}")

    first = measured(4)
    four, file = first.last_line, first.cell.path / "samples.jsonl"
    before = file.read_bytes()
    eight = measured(8).last_line
    after = file.read_bytes()
    assert (eight["n"], eight["asked"]) == (8, 8) and len(after.splitlines()) == 8
    assert after.startswith(before), "only the new ones"
    no_models()
    again = measured(4).last_line
    assert [again[name] for name in decoded] == [four[name] for name in decoded]
    assert again["phases"] == eight["phases"], "the profile is kept"
    assert file.read_bytes() == after
    assert [measured(8).last_line[name] for name in decoded] == [eight[name] for name in decoded]


AGAIN = "remove it to write it again"
TORN, CHANGED = "torn", "changed"


@pytest.mark.parametrize(
    ("method", "name", "damage", "said"),
    [
        ("ar", "samples.jsonl", b"", ""),
        ("ar", "cell.yaml", b"", ""),
        ("mars", "samples.jsonl", b"", ""),
        ("mars", "samples.jsonl", TORN, ""),
        ("mars", "samples.jsonl", CHANGED, " line 2 is not a sample (changed since it was written"),
        ("mars", "failure.json", b'{"reason": 3}', AGAIN),
        ("mars", "environment.json", b"[" * 100_000, AGAIN),
        ("mars", "cell.yaml", b"- 1", AGAIN),
        ("mars", "cell.yaml", b"[" * 3500, AGAIN),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_complete_cell_notices_what_became_of_its_files(
    command, store, method, name, damage, said, caplog
):
    """And of its baseline's. What cannot be meant is refused, until the line or file is removed."""
    before = samples_of(store)
    [cell] = [cell for cell in store.cells() if f"-{method}-" in cell.key]
    file, left = cell.path / name, b""
    if damage in (TORN, CHANGED):
        first, second, third = file.read_bytes().splitlines(keepends=True)
        other = second.replace(b'"output_ids": [', b'"output_ids": [1')
        left = first + (second if damage == TORN else third)
        damage = left + third[:-9] if damage == TORN else first + other + third

    def hold(content: bytes) -> None:
        file.unlink(missing_ok=True)
        if content:
            file.write_bytes(content)

    hold(damage)
    if said:
        [line] = command(MEASURED, status=2).err.splitlines()
        assert line.startswith(f"error: {file}") and said in line and not caplog.text
        hold(left)
    command(MEASURED)
    assert samples_of(Store(store.root)) == before, "no sample lost, none twice"
    if name in ("samples.jsonl", "cell.yaml"):
        assert file.read_bytes().startswith(left), "what was left is not decoded again"


def test_killed_workers_lose_nothing(command, tmp_path, monkeypatch):
    """With the process that started them."""
    words = "method=sps,mars_sampling decoding.temperature=1 timed=2 n=4 quality_batch=2"
    worker = partial(dying.worker_that_kills_its_starter, tmp_path / "died")
    with monkeypatch.context() as patch:
        patch.setattr(quality, "loaded_worker", worker)
        killed = command("-m", words, "workers=2", store=tmp_path / "killed")
    assert (tmp_path / "died").exists()
    whole = command("-m", words, store=tmp_path / "whole")
    assert samples_of(killed.store) == samples_of(whole.store)


def test_how_many_workers():
    asked = [(None, 0), (None, 2 * JOBS_EACH - 1), (None, 1000), (4, 3), (4, 1000)]
    counts = [worker_count(wanted, {"cpu"}, jobs) for wanted, jobs in asked]
    assert counts == [1, 1, DEFAULT_THREADS, 3, 4]


def test_a_prompt_that_kills_its_worker_fails_alone(command, monkeypatch):
    """Real workers, which die whenever they are given the second of four prompts."""
    monkeypatch.setattr(quality, "loaded_worker", dying.worker_of_the_quality_pass)
    result = command("method=sps n=4 workers=2 quality_batch=4", status=1)
    [failed] = failed_samples(result.cell)
    assert failed.id.endswith("-00001") and len(result.cell.good_samples()) == 3
    assert failed.error == (
        f"{MOST_DEATHS} workers died while they decoded it (the last: exit status 9); is there "
        "enough memory?"
    )
