"""Claims of rotations: held by one process, free when it ends however it ends, visible to others."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from results.store import files
from results.store.cells import Store
from results.store.errors import Locked, StoreError
from results.store.files import holders, rotation_held

PROJECT = Path(__file__).resolve().parents[2]
HOLD = """
import sys, time
from pathlib import Path
from results.store.files import rotation_held
with rotation_held(Path(sys.argv[1]), "abc", ["a-cell", "b-cell"]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def other(tmp_path: Path):
    """A process that holds the rotation `abc` of the store."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=PROJECT, stdout=subprocess.PIPE)
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
    assert (tmp_path / "rotations" / "abc.json").read_text() == ""


def test_a_store_without_claims_has_no_holders(tmp_path: Path) -> None:
    assert holders(tmp_path / "nowhere") == {}


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_an_error(tmp_path: Path, monkeypatch, number: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    for lock in (lambda: rotation_held(tmp_path, "abc", ["a"]), lambda: Store(tmp_path).cell("abc").lock()):
        with pytest.raises(StoreError, match="this file system refuses locks") as error, lock():
            pass
        assert not isinstance(error.value, Locked) and "\n" not in str(error.value)


@pytest.mark.parametrize(("mount", "refused"), [
    ("/data nfs4 rw,vers=4.2,local_lock=none", ""),
    ("/data nfs rw,vers=3,local_lock=none", ""),
    ("/data nfs rw,vers=3,nolock,local_lock=all", "nfs with local_lock=all, nolock"),
    ("/data nfs4 rw,local_lock=flock", "nfs4 with local_lock=flock"),
    ("/data lustre rw,flock", ""),
    ("/data lustre rw,localflock", "lustre with localflock"),
    ("/data/other nfs rw,nolock", ""),
    ("/da nfs rw,nolock", ""),
])
def test_mounts_whose_locks_other_hosts_do_not_see(monkeypatch, mount: str, refused: str) -> None:
    mounts = [SimpleNamespace(mountpoint=point, fstype=kind, opts=options)
              for point, kind, options in map(str.split, ("/ ext4 rw", mount, "/tmp tmpfs rw"))]
    monkeypatch.setattr(files.psutil, "disk_partitions", lambda all: mounts)
    if not refused:
        files.check_across_hosts(Path("/data/store"))
        return
    with pytest.raises(StoreError, match=refused):
        files.check_across_hosts(Path("/data/store"))
