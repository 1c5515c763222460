"""The store survives kills and contention, and never hides damage."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from methods.batch import Generation, total
from methods.rules import walk as rules
from results.store import traces
from results.store.cells import CellFolder, Store
from results.store.errors import Locked, StoreError
from results.store.records import line_of, read_config
from results.store.sample import FailedSample, to_plain
from tests.helpers.synthetic_cells import made_up, sample

ROOT = Path(__file__).parents[2]


def line(id: str, cell: str = "abc123") -> bytes:
    """A line of samples.jsonl."""
    return line_of(cell, to_plain(sample(id))).encode()


WHOLE = to_plain(sample("p1"))


@pytest.fixture
def cell(tmp_path):
    return Store(tmp_path).cell("abc123")


def test_a_key_must_be_a_folder_name(tmp_path):
    for key in ("../up", "", ".hidden", "a/b"):
        with pytest.raises(StoreError, match="not a folder name"):
            Store(tmp_path).cell(key)


def test_a_lone_surrogate_can_be_written(cell):
    with cell.lock():
        cell.append(sample("p0", answer="ValueError: \ud800"))
        cell.write_failure("\udfff\n  on two lines")
    assert cell.good_samples()[0].answer == "ValueError: \\ud800"
    assert cell.failure() == "\\udfff on two lines"
    for _ in range(2):
        cell.clear_failure()
    assert cell.failure() is None
    assert b"\xed" not in (cell.path / "samples.jsonl").read_bytes()


def test_samples_come_back_as_written_and_none_that_is_not_json(cell):
    details = {"group": "g", "flags": {"vacuous_bound": 2}, "details": {"strict": 1.0}}
    good = [
        sample("p0", [1, 2], texts=["naïve \n τ ≥ 1"], committed=[2], nodes=[3]),
        sample("p1", score=None, **details),
    ]
    failed = FailedSample("p2", "prompt longer than the context")
    with pytest.raises(StoreError, match="lock"):
        cell.append(failed)
    with cell.lock():
        with pytest.raises(ValueError):
            cell.append(sample("p3", score=float("nan")))
        for record in (*good, failed):
            cell.append(record)
    assert cell.samples() == [*good, failed] and cell.good_samples() == good


@pytest.mark.parametrize(
    "torn",
    [
        b'{"id": "p2", "te',
        b'{"id": "p2"}',
        b"{",
        '{"id": "p2", "text": "é'.encode()[:-1],
        b'{"id": "' + b"x" * 70_000,
    ],
)
def test_an_unfinished_last_line_is_left_out_aloud_and_cut_on_append(cell, caplog, torn):
    with cell.lock():
        cell.append(sample("p0"))
        cell.append(sample("p1", texts=["y" * 200_000]))
    path = cell.path / "samples.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert [record.id for record in cell.samples()] == ["p0", "p1"]
    assert "line 3 is unfinished" in caplog.text
    assert path.read_bytes() != whole, "reading must not change the file"
    with cell.lock():
        cell.append(sample("p2"))
    assert path.read_bytes() == whole + line("p2")


@pytest.mark.parametrize(
    "bad",
    [
        '{"id": "p1", "te',
        "[1, 2]",
        '{"no": "id"}',
        "",
        "\x00\x00",
        '{"id": "p1", "error": 7}',
        '{"id": "p1"}',
        *(
            json.dumps({name: x for name, x in WHOLE.items() if name != without})
            for without in ("prompt_sha256", "nodes")
        ),
        json.dumps(WHOLE | {"relaxed": "0"}),
        json.dumps(WHOLE | {"counts": {}}),
        line("p1").decode().replace('"relaxed": 0', '"relaxed": 1').strip(),
        line("p1", cell="another").decode().strip(),
    ],
)
def test_a_malformed_line_in_the_middle_is_an_error_that_names_it(cell, bad):
    cell.path.mkdir()
    (cell.path / "samples.jsonl").write_bytes(line("p0") + bad.encode() + b"\n" + line("p2"))
    with pytest.raises(StoreError, match=r"samples\.jsonl line 2 "):
        cell.samples()


def test_a_changed_measurement_is_an_error(cell):
    cell.write_record("profile", {"own": {"verify": 0.25}})
    assert cell.record("profile") == {"own": {"verify": 0.25}}
    file = cell.path / "profile.json"
    written = file.read_text()
    for content, fault in (
        (written.replace("0.25", "0.75"), "changed since"),
        ('{"own": {"cycle": Infinity}}\n', "without its"),
        ("[1, 2]\n", "without its"),
    ):
        file.write_text(content)
        with pytest.raises(
            StoreError, match=rf"profile\.json is not JSON as the store writes it \({fault}"
        ):
            cell.record("profile")


def test_what_a_killed_process_left_is_removed_by_the_next_one(cell):
    cell.path.mkdir()
    host, dead = socket.gethostname(), 99999999
    left = {f".{name}.json.{host}.{dead}.leeway" for name in ("summary", "failure")}
    others = {
        f".summary.json.{host}.1.leeway",
        f".summary.json.elsewhere.{dead}.leeway",
        ".summary.json.draft",
    }
    for name in left | others:
        (cell.path / name).touch()
    cell.write_summary(made_up().summary.plain())
    cell.clear_failure()
    assert {path.name for path in cell.path.iterdir()} == others | {"summary.json"}, (
        "running processes, other machines"
    )


def test_a_later_line_replaces_only_a_failed_prompt(cell):
    with cell.lock():
        cell.append(FailedSample("p0", "out of memory"))
        cell.append(sample("p1"))
        cell.append(sample("p0"))
    assert cell.samples() == [sample("p0"), sample("p1")]
    with cell.lock():
        cell.append(sample("p1"))
    with pytest.raises(StoreError, match="line 4 repeats prompt 'p1'"):
        cell.samples()


DYING = """
import os, signal, sys
from pathlib import Path
from results.store import files
from results.store.cells import Store
from results.store.sample import FailedSample

def fsync(file, real=os.fsync):
    real(file)
    if os.fstat(file).st_size > 500_000:
        os.kill(os.getpid(), signal.SIGKILL)

files.os.fsync = fsync
with Store(Path(sys.argv[1])).cell("abc123").lock() as cell:
    for i in range(100):
        cell.append(FailedSample(f"p{i}", "x" * 200_000))
"""
"""Appends lines, and is killed before it knows that the third one is on disk."""


def started(script: str, cell: CellFolder) -> subprocess.Popen[bytes]:
    """A process that is given the store of this cell."""
    command = [sys.executable, "-c", script, cell.path.parent]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_kill_while_appending_loses_no_line_and_frees_the_cell(cell):
    dying = started(DYING, cell)
    dying.communicate()
    assert dying.returncode == -signal.SIGKILL
    with cell.lock():  # the dead process holds nothing
        cell.append(sample("p3"))
    assert [record.id for record in cell.samples()] == ["p0", "p1", "p2", "p3"]


def test_the_environment_keeps_the_history_of_runs(cell):
    assert cell.environment() is None
    for gpu in ("A", "B", "C"):
        cell.write_environment({"gpu": gpu})
    now = cell.environment()
    earlier = now.pop("earlier")
    assert [run["gpu"] for run in (*earlier, now)] == ["A", "B", "C"]
    assert all("earlier" not in run and run["since"] for run in earlier)


def test_a_summary_is_replaced_whole_or_not_at_all(cell):
    cell.write_summary({"n": 3, "tau": 2.5})
    with pytest.raises(ValueError):
        cell.write_summary({"n": 4, "tau": float("inf")})
    [path] = cell.path.iterdir()  # no temporary file stays behind
    assert path.name == "summary.json" and json.loads(path.read_text())["tau"] == 2.5
    with cell.lock():
        assert cell.has_latest_summary()
        cell.append(sample("a"))
        assert not cell.has_latest_summary(), "it is about other samples"


HOLD = """
import sys
from pathlib import Path
from results.store.cells import Store
with Store(Path(sys.argv[1])).cell("abc123").lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_says_who_holds_it_and_does_not_survive_its_holder(cell) -> None:
    other = started(HOLD, cell)
    assert other.stdout.readline() == b"held\n"
    holder = rf"by process {other.pid} on {os.uname().nodename} since \S+\+00:00: "
    with pytest.raises(Locked, match=holder), cell.lock():
        pass
    other.kill()
    other.communicate()
    with cell.lock():
        assert json.loads((cell.path / ".lock").read_text())["process"] == os.getpid()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_an_error(cell, monkeypatch, number: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match=r"\A.*cannot be written: .*\Z") as error, cell.lock():
        pass
    assert not isinstance(error.value, Locked)


TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t:#-'\"{}[]&*!|>%@`? "),
    max_size=30,
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def read(text: str) -> dict[str, Any]:
    return read_config(Path("cell.yaml"), text.encode())


@given(
    st.dictionaries(st.from_regex("[a-z_]{1,8}", fullmatch=True), VALUES, min_size=1, max_size=5)
)
def test_what_was_written_is_read(config: dict[str, Any]) -> None:
    config.pop("schema", None)
    assert (
        read(yaml.safe_dump({"schema": 2, **config}, sort_keys=False, allow_unicode=True)) == config
    )


@pytest.mark.parametrize(
    "text",
    [
        "a: &x {b: 1}\nc: *x\n",  # a reference to another section
        "a: 1\na: 2\n",
        "a:\n- 1\n- 2\nb: |\n  x\n\n  y\n",
        "a: 'x\n\n  y'\nb: 1\n",
        "# note\na: 1\n",
        "a: 1\n? b\n: 2\n",
        "a: 1",
        "a: 1\r\nb: 2\r\n",
        "yes: 1\nno: 2\n",
        "c: {a: 1,\n  b: 2}\n",
        "a: {b: 1}  # note\nc: [1,\n 2]\n",
        "a:\nb:\n  c:\n",
    ],
)
def test_a_file_by_hand_means_what_yaml_says(text: str) -> None:
    assert read("schema: 2\n" + text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text", ["a: 'x\nb: y\n", "a: 1\n---\nb: 2\n", "a: [1,\nb: 2\n", "a: *x\n", "a: 1\n b: 2\n"]
)
def test_what_is_no_yaml_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match=r"cell\.yaml is not YAML"):
        read(text)


@pytest.mark.parametrize("schema", ["1", "3", "null"])
def test_cells_of_another_schema_are_refused(schema: str) -> None:
    with pytest.raises(
        StoreError, match=r"schema \w+: this version reads schema 2; use the version"
    ):
        read(f"schema: {schema}\nseed: 0\n")


def test_turns_add_up() -> None:
    first = {"committed": [2], "relaxed": 1, "flags": {"a": 1, "b": 0}, "nll": 0.5}
    second = {"committed": [1, 4], "relaxed": 2, "flags": {"a": 2, "c": 4}, "nll": 0.25}
    whole = {"committed": [2, 1, 4], "relaxed": 3, "flags": {"a": 3, "b": 0, "c": 4}}
    assert total([Generation(**first), Generation(**second)]) == Generation(**whole, nll=0.75)
    assert total([]) == Generation()


def test_methods_and_results_use_the_same_words_of_clauses() -> None:
    assert [clause.word for clause in rules.Clause] == list(traces.Clause)
    assert [clause.word for clause in rules.KEPT] == list(traces.KEPT)
