"""The store survives kills and contention, and never hides damage."""

import json
import os
import signal
import socket
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from results.store.cells import Store
from results.store.errors import StoreError
from results.store.records import line_of
from results.store.sample import FailedSample, to_plain
from tests.helpers.synthetic_cells import made_up, sample

ROOT = Path(__file__).parents[2]


def line(id: str, cell: str = "abc123") -> bytes:
    """A line of samples.jsonl."""
    return line_of(cell, to_plain(sample(id))).encode()


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
        cell.write_failure("\udfff")
    assert cell.good_samples()[0].answer == "ValueError: \\ud800"
    assert cell.failure() == "\\udfff"
    assert b"\xed" not in (cell.path / "samples.jsonl").read_bytes()


def test_samples_come_back_as_written(cell):
    good = [sample(f"p{i}", [1, 2, i], texts=["naïve \n τ ≥ 1"]) for i in range(2)]
    good.append(sample("p2", group="g", flags={"vacuous_bound": 2}, details={"strict": 1.0}, score=None))
    failed = FailedSample("p3", "prompt longer than the context")
    with cell.lock():
        for record in (*good, failed):
            cell.append(record)
    assert cell.samples() == [*good, failed]
    assert cell.good_samples() == good


def test_appending_needs_the_lock(cell):
    with pytest.raises(StoreError, match="lock"):
        cell.append(sample("p0"))
    with cell.lock():
        cell.append(sample("p0"))
    with pytest.raises(StoreError, match="lock"):
        cell.append(sample("p1"))


def test_a_sample_that_is_not_json_leaves_no_trace(cell):
    with cell.lock():
        with pytest.raises(ValueError):
            cell.append(sample("p0", score=float("nan")))
        cell.append(sample("p1"))
    assert [record.id for record in cell.samples()] == ["p1"]


HALF_A_LETTER = '{"id": "p2", "text": "é'.encode()[:-1]


@pytest.mark.parametrize("torn", [b'{"id": "p2", "te', b'{"id": "p2"}', b"{", HALF_A_LETTER])
def test_an_unfinished_last_line_is_left_out_aloud_and_cut_on_append(cell, caplog, torn):
    with cell.lock():
        cell.append(sample("p0"))
        cell.append(sample("p1"))
    path = cell.path / "samples.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert [record.id for record in cell.samples()] == ["p0", "p1"]
    assert "line 3 is unfinished" in caplog.text
    assert path.read_bytes() != whole, "reading must not change the file"
    with cell.lock():
        cell.append(sample("p2"))
    assert path.read_bytes() == whole + line("p2")


def test_a_torn_line_behind_a_long_line_is_cut(cell):
    with cell.lock():
        cell.append(sample("p0", texts=["y" * 200_000]))
    with open(cell.path / "samples.jsonl", "ab") as file:
        file.write(b'{"id": "' + b"x" * 70_000)
    with cell.lock():
        cell.append(sample("p1"))
    assert [record.id for record in cell.samples()] == ["p0", "p1"]


@pytest.mark.parametrize("bad", [
    '{"id": "p1", "te', "[1, 2]", '{"no": "id"}', "", "\x00\x00", '{"id": "p1", "error": 7}', '{"id": "p1"}',
    json.dumps(to_plain(sample("p1")) | {"relaxed": "0"}), json.dumps(to_plain(sample("p1")) | {"counts": {}}),
    line("p1").decode().replace('"relaxed": 0', '"relaxed": 1').strip(), line("p1", cell="another").decode().strip(),
])
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
    of_0_2 = {"own": {"verify": 0.25}}
    of_0_2["digest"] = sha256(json.dumps(of_0_2).encode()).hexdigest()
    file.write_text(json.dumps(of_0_2, indent=1) + "\n")
    assert cell.record("profile") == {"own": {"verify": 0.25}}
    for content, fault in ((written.replace("0.25", "0.75"), "changed since"),
                           ('{"own": {"cycle": Infinity}}\n', "without its"), ("[1, 2]\n", "without its")):
        file.write_text(content)
        with pytest.raises(StoreError, match=rf"profile\.json is not JSON as the store writes it \({fault}"):
            cell.record("profile")


def test_what_a_killed_process_left_is_removed_by_the_next_one(cell):
    cell.path.mkdir()
    host, dead = socket.gethostname(), 99999999
    left = {f".{name}.json.{host}.{dead}.leeway" for name in ("summary", "failure")}
    others = {f".summary.json.{host}.1.leeway", f".summary.json.elsewhere.{dead}.leeway", ".summary.json.draft"}
    for name in left | others:
        (cell.path / name).touch()
    cell.write_summary(made_up().summary.plain())
    cell.clear_failure()
    assert {path.name for path in cell.path.iterdir()} == others | {"summary.json"}, "running processes, other machines"


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
from results.store import files
from results.store.cells import Store
from results.store.sample import FailedSample

def fsync(file, real=os.fsync):
    real(file)
    if os.fstat(file).st_size > 500_000:
        os.kill(os.getpid(), signal.SIGKILL)

files.os.fsync = fsync
with Store(sys.argv[1]).cell("abc123").lock() as cell:
    for i in range(100):
        cell.append(FailedSample(f"p{i}", "x" * 200_000))
"""
"""Appends lines, and is killed before it knows that the third one is on disk."""


def test_a_kill_while_appending_loses_no_line_and_frees_the_cell(cell):
    done = subprocess.run([sys.executable, "-c", DYING, str(cell.path.parent)], cwd=ROOT, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [record.id for record in cell.samples()] == ["p0", "p1", "p2"]
    with cell.lock():  # the dead process holds nothing
        cell.append(sample("p3", texts=["resumed"]))
    assert [record.id for record in cell.samples()] == ["p0", "p1", "p2", "p3"]


def test_who_finds_a_cell_held_gets_one_line_naming_the_holder(cell):
    again = Store(cell.path.parent).cell("abc123")
    with cell.lock(), pytest.raises(StoreError, match=f"^{cell.path} is being written by process {os.getpid()} on "), \
            again.lock():
        pass
    with again.lock():
        assert again.samples() == []


def test_the_environment_keeps_the_history_of_runs(cell):
    assert cell.environment() is None
    for gpu in ("A", "B", "C"):
        cell.write_environment({"gpu": gpu})
    now = cell.environment()
    assert now["gpu"] == "C" and [run["gpu"] for run in now["earlier"]] == ["A", "B"]
    assert all("earlier" not in run and run["since"] for run in now["earlier"])


def test_failure_is_one_line_and_can_be_cleared(cell):
    assert cell.failure() is None
    cell.write_failure("CUDA out of memory\n  tried 2 GiB")
    assert cell.failure() == "CUDA out of memory tried 2 GiB"
    cell.clear_failure()
    cell.clear_failure()
    assert cell.failure() is None


def test_a_summary_is_replaced_whole_or_not_at_all(cell):
    cell.write_summary({"n": 3, "tau": 2.5})
    with pytest.raises(ValueError):
        cell.write_summary({"n": 4, "tau": float("inf")})
    assert json.loads((cell.path / "summary.json").read_text())["tau"] == 2.5
    assert {path.name for path in cell.path.iterdir()} == {"summary.json"}, "no temporary file stays behind"
    with cell.lock():
        assert cell.has_latest_summary()
        cell.append(sample("a"))
        assert not cell.has_latest_summary(), "it is about other samples"
