"""A store or an output folder that cannot be written is one line, before anything is decoded where that is known."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.run.models import ModelPool
from tests.helpers.summaries import written

Mount = Callable[[str], Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a file system in memory, with these options."""
    folder = tmp_path / "disk"

    def made(options: str) -> Path:
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True,
                              text=True, check=False)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        return folder

    yield made
    if folder.is_mount():
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def refused(command, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command that is refused before a model is loaded; its one line."""
    def run(*overrides: str, flags: tuple[str, ...] = (), **kw) -> str:
        with monkeypatch.context() as patched:
            patched.setattr(ModelPool, "load", lambda pool, cell: pytest.fail("a model was loaded"))
            result = command(*overrides, flags=flags, **kw)
        [line] = result.err.splitlines()
        assert result.status == 2 and line.startswith("error: ")
        return line
    return run


@pytest.mark.parametrize(("options", "reason"), [
    ("ro", "Read-only file system"), ("size=4k,nr_inodes=2", "No space left on device"),
    ("size=4k,nr_inodes=100", "No space left on device")])
def test_a_disk_without_room(refused, mount: Mount, options: str, reason: str) -> None:
    disk = mount(options)
    if "100" in options:
        (disk / "full").write_bytes(bytes(4096))
    assert refused(store=disk / "store").startswith(f"error: {disk}/store: cannot be written: {reason}")


@pytest.mark.slow
def test_a_disk_that_fills_up_while_measuring(command, mount: Mount) -> None:
    disk = mount("size=32k,nr_inodes=100")
    given = "method=sps", "n=30", "quality_batch=4"
    result = command(*given, store=disk / "store")
    lines = result.err.splitlines()
    assert result.status != 0 and "No space left on device" in lines[-1] and "Traceback" not in result.err
    cells = result.store.cells()
    assert not [path for cell in cells for path in cell.path.iterdir()
                if path.name.startswith(".") and path.name != ".lock"]
    kept = {cell.key: [sample.id for sample in cell.samples()] for cell in cells}
    assert 0 < sum(map(len, kept.values())) < 60
    subprocess.run(["mount", "-o", "remount,size=10m", str(disk)], check=True)
    again = command(*given, store=disk / "store")
    assert again.status == 0
    for cell in again.store.cells():
        before = kept.get(cell.key, [])
        ids = [sample.id for sample in cell.samples()]
        assert ids[:len(before)] == before and len(ids) == 30
    assert written(again.cell).n == 30


def test_a_complete_store_that_can_only_be_read_is_printed(command, mount: Mount, tmp_path: Path) -> None:
    first = command("method=sps", "n=1", store=tmp_path / "store")
    disk = mount("size=10m")
    shutil.copytree(first.store.root, disk / "store")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    again = command("method=sps", "n=1", "summary=json", store=disk / "store")
    assert again.status == 0 and not again.err and again.last_line == written(first.cell).plain
    line = command("method=sps", "n=2", store=disk / "store").err
    assert line.startswith(f"error: {disk}/store") and "Read-only file system" in line
