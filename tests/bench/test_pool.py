"""One pool and one retry rule, with real processes that die where their task says; they import this
file alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import active_children

import pytest

from bench.config.paths import PROJECT
from bench.run.pool import MOST_DEATHS, Child, Died, ProcessPool, WorkerError

Letters = str


def worker() -> Callable[[Letters], tuple[str, str]]:
    """Spells letters; dies of an x, and cannot spell an e."""

    def spell(letters: Letters) -> tuple[str, str]:
        if "x" in letters:
            os.kill(os.getpid(), signal.SIGKILL)
        if "e" in letters:
            raise ValueError(f"no {letters}")
        return letters.upper(), os.environ["SHARE"]

    return spell


@pytest.fixture
def two() -> Iterator[ProcessPool[Letters]]:
    starts = [
        partial(Child, "spawn", f"worker {number}", {"SHARE": str(number)}, worker)
        for number in (1, 2)
    ]
    with ProcessPool(starts, lambda letters: f"spelling {letters} again", list) as made:
        yield made


def given(*tasks: Letters) -> Callable[[Letters | None], Letters | None]:
    left = iter(tasks)
    return lambda before: next(left, None)


def test_tasks_are_spread_and_errors_are_of_their_task_alone(two):
    done = dict(two.run(given("ab", "e", "cd")))
    assert [done[name][0] for name in ("ab", "cd")] == ["AB", "CD"] and {
        done["ab"][1],
        done["cd"][1],
    } <= {"1", "2"}
    assert isinstance(done["e"], WorkerError) and str(done["e"]).startswith("ValueError: no e")


def test_what_kills_processes_fails_alone(two, caplog):
    done = dict(two.run(given("axb", "cd")))
    assert {name: done[name][0] for name in ("a", "b", "cd")} == {"a": "A", "b": "B", "cd": "CD"}
    assert (
        isinstance(done["x"], Died)
        and done["x"].cause == "signal 9"
        and set(done) == {"a", "b", "x", "cd"}
    )
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == MOST_DEATHS - 1 and all(
        "died, signal 9: spelling axb again" in line for line in said
    )


def test_a_process_learns_what_it_did_before_and_is_replaced_when_it_has_died():
    asked: list[Letters | None] = []
    tasks = given("ab", "x")
    with ProcessPool([partial(Child, "spawn", "worker 1", {"SHARE": "1"}, worker)], str) as one:
        done = [name for name, _ in one.run(lambda before: asked.append(before) or tasks(before))]
        assert done == ["ab", "x"] and asked == [None, "ab", None]
        assert one.call("cd") == ("CD", "1"), "a pool goes on after a task that has failed"
        with pytest.raises(WorkerError, match="no e"):
            one.call("e")
        assert one.call("f")[0] == "F"
        with pytest.raises(Died, match=r"^worker 1 \(process \d+\) died, signal 9$"):
            one.call("x")
        assert one.call("f")[0] == "F"
        [process] = [child for child in active_children() if child.name == "worker 1"]
        process.kill()
        process.join()
        assert one.call("ab") == ("AB", "1"), "it has died while it was idle"


def test_a_long_folder_for_temporary_files_takes_workers_too(tmp_path):
    """The kernel takes a socket's path of 107 bytes; a job's TMPDIR alone may have as many."""
    folder = tmp_path / ("folder_of_a_job_" * 7)
    folder.mkdir()
    code = (
        "import tempfile\nfrom bench.run import pool\nfrom tests.bench.test_pool import worker\n"
        "pool.PRELOADED.clear()\n"
        "child = pool.Child('forkserver', 'worker', {'SHARE': '1'}, worker)\n"
        "child.send('ab')\nprint(child.receive(), tempfile.gettempdir())\nchild.end()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(folder)},
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.strip() == f"('AB', '1') {folder}", ran.stderr
