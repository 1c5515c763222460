"""Claims of rotations: held by one process, free when it ends however it ends, visible to others."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from results.store.cells import Store
from results.store.errors import Locked, StoreError
from results.store.files import holders, rotation_held

PROJECT = Path(__file__).resolve().parents[2]
HOLD = """
import sys
from pathlib import Path
from results.store.files import rotation_held
with rotation_held(Path(sys.argv[1]), "abc", ["a-cell", "b-cell"]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path):
    """A process that holds the rotation `abc` of the store."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=PROJECT,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_rotation_is_held_by_one_process_and_says_by_which(tmp_path: Path, other) -> None:
    [(rotation, holder)] = holders(tmp_path).items()
    assert rotation == "abc" and holder.process == other.pid and holder.host == os.uname().nodename
    assert holder.cells == ("a-cell", "b-cell") and holder.since.endswith("+00:00")
    with pytest.raises(Locked, match=f"a-cell and 1 more .* by process {other.pid} on "), \
            rotation_held(tmp_path, "abc", ["a-cell", "b-cell"]):
        pass
    with rotation_held(tmp_path, "def", ["c-cell"]):
        assert {holder.process for holder in holders(tmp_path).values()} == {other.pid, os.getpid()}
    assert set(holders(tmp_path)) == {"abc"}


def test_a_claim_does_not_survive_its_holder(tmp_path: Path, other) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert holders(tmp_path) == {} and "a-cell" in (tmp_path / "rotations" / "abc.json").read_text()
    with rotation_held(tmp_path, "abc", ["a-cell"]):
        assert holders(tmp_path)["abc"].process == os.getpid()
    assert holders(tmp_path) == {}


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_an_error(tmp_path: Path, monkeypatch, number: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    for lock in (lambda: rotation_held(tmp_path, "abc", ["a"]), lambda: Store(tmp_path).cell("abc").lock()):
        with pytest.raises(StoreError, match="cannot be written: ") as error, lock():
            pass
        assert not isinstance(error.value, Locked) and "\n" not in str(error.value)
