"""bench.status: what is done, who works on what, what failed, the time left; and what prune=yes removes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from bench import status
from bench.config import identity
from results.store.cells import Store
from results.store.files import rotation_held
from results.store.status import rotations
from tests.helpers.generated_store import Writer

IDS = [f"p{i}" for i in range(8)]
BASE = "tiny-ar"
CONFIG = {"pair": {"name": "tiny"}, "task": {"name": "mini_gsm"}, "decoding": {"temperature": 0.5}, "baseline": BASE}


def write(root: Path, key: str, answered: int = 8, complete: bool = True, timed: int = 2, **config: object) -> None:
    Writer(root, IDS[:answered], min(timed, answered)).write(key, {**CONFIG, "name": key, **config}, key == BASE,
                                                             complete)


def began(store: Store, key: str, **run: int) -> None:
    """Write the environment record that a run writes before the first prompt."""
    store.cell(key).write_environment({"run": run})


@contextmanager
def held(store: Store, *keys: str) -> Iterator[None]:
    """Hold the rotation of these cells, as a run does from its start."""
    with rotation_held(store.root, "rotation", keys):
        yield


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert status.main(words) == 0
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Cells of one rotation: a baseline, one complete, one failed, one left open."""
    root = tmp_path / "store"
    write(root, BASE, timed=0)
    write(root, "tiny-mars-1")
    write(root, "tiny-mars-2", answered=3, complete=False)
    write(root, "tiny-mars-3", answered=2, complete=False, timed=0)
    Store(root).cell("tiny-mars-3").write_failure("CUDA out of memory")
    return Store(root)


def test_what_is_done_failed_and_open(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    first, *rest = shown(capsys, f"store.dir={store.root}")
    assert first == f"{store.root}: 4 cells in 1 rotations: 2 complete, 1 failed, 1 open"
    assert "failed: tiny-mars-3: CUDA out of memory" in rest
    [row] = [line for line in rest if "tiny, mini_gsm, T = 0.5" in line]
    assert [word for word in row.split() if word.isdigit()] == ["4", "2", "1", "1", "21", "4"]


def test_who_works_on_a_rotation_and_how_long_it_takes(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    with held(store, "tiny-mars-2", "tiny-mars-9"):
        began(store, "tiny-mars-2", prompts=8, timed=4, answered_before=1)
        [line] = shown(capsys, f"store.dir={store.root}", "summary=json")
        row = json.loads(line)
        assert row["running"] == 1 and row["not begun"] == 1 and row["complete"] == 2 and row["failed"] == 1
        assert row["held by"].startswith("process ") and " since " in row["held by"]
        [rotation] = rotations(store, datetime.fromisoformat(row["held by"].rpartition(" ")[2]) + timedelta(seconds=60))
        clocks = [arm.prefill_s + arm.decode_s for timed in store.cell("tiny-mars-2").timed() for arm in timed.runs]
        timed = (4 - 2) * 2 * sum(clocks) / len(clocks)
        # five answers of a cell are missing, two took a minute; another cell is not begun
        assert rotation.seconds == pytest.approx(2 * (5 * 60 / 2 + timed), rel=0.1) and not rotation.partly
    assert json.loads(shown(capsys, f"store.dir={store.root}", "summary=json")[0])["held by"] is None


def content(root: Path) -> Mapping[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name[0] != "."}


def test_pruning_removes_what_it_lists_and_nothing_else(store: Store, tmp_path: Path,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "target"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"weights")
    before = content(store.root)
    write(store.root, "tiny-mars-old", identity=identity.IDENTITY_VERSION - 1)
    write(store.root, "tiny-mars-replaced", pair={"name": "tiny", "target": str(model)}, fingerprints={"target": "0"})
    write(store.root, "tiny-mars-now", identity=identity.IDENTITY_VERSION, pair={"name": "tiny", "target": "org/model"},
          fingerprints={"target": "0"})
    before = {**before, **content(store.root / "tiny-mars-now")}
    (store.root / "tiny-mars-empty").mkdir()
    (store.root / ".cell.yaml.elsewhere.1").write_text("of a process of another host")
    assert any(line.startswith("orphans: 3, which no command") for line in shown(capsys, f"store.dir={store.root}"))
    lines = shown(capsys, f"store.dir={store.root}", "prune=true")
    assert lines[-1] == f"{store.root}: 3 listed, nothing removed; prune=yes removes them"
    assert (store.root / "tiny-mars-old").exists() and (store.root / "tiny-mars-empty").exists()
    lines = shown(capsys, f"store.dir={store.root}", "prune=yes")
    assert lines == [f"orphan: {store.root}/tiny-mars-old: identity 2; the current one is 3",
                     f"orphan: {store.root}/tiny-mars-replaced: pair.target={model} was replaced",
                     f"orphan: {store.root}/tiny-mars-empty: empty cell folder",
                     f"{store.root}: 3 removed, 0 left"]
    assert content(store.root) == before
    assert shown(capsys, f"store.dir={store.root}", "prune=true") == [f"{store.root}: 0 listed, nothing removed"]


def test_pruning_leaves_what_is_not_the_project_s(store: Store, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    """Folders with hidden files of the user, a backup named like a temporary file, links to folders elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    for folder, file in ((store.root / "mine", ".git"), (store.root / "notes", ".notes.md"), (elsewhere, "data"),
                         (store.root / f".backup.{socket.gethostname()}.20240101", "copy")):
        folder.mkdir()
        (folder / file).write_text("mine")
    for name, target in (("linked", elsewhere), ("empty-link", tmp_path / "empty"),
                         (f".archive.{socket.gethostname()}.99999999.leeway", elsewhere)):
        target.mkdir(exist_ok=True)
        (store.root / name).symlink_to(target)
    before = sorted(store.root.rglob("*")), sorted(elsewhere.rglob("*")), content(store.root)
    for word in ("true", "yes"):
        assert status.main([f"store.dir={store.root}", f"prune={word}"]) == 0
        assert "orphan: " not in capsys.readouterr().out
    assert (sorted(store.root.rglob("*")), sorted(elsewhere.rglob("*")), content(store.root)) == before


def test_pruning_leaves_a_cell_that_holds_a_file_of_the_user(store: Store, tmp_path: Path,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    """Also a lock file that is none, and a lock file that is a link."""
    target = tmp_path / "mine"
    target.write_text("mine")
    write(store.root, "tiny-mars-old", identity=identity.IDENTITY_VERSION - 1)
    write(store.root, "tiny-mars-linked", identity=identity.IDENTITY_VERSION - 1)
    (store.root / "tiny-mars-old" / "notes").mkdir()
    (store.root / "tiny-mars-old" / "notes" / ".draft").write_text("mine")
    lock = store.root / "tiny-mars-linked" / ".lock"
    lock.unlink(missing_ok=True)
    lock.symlink_to(target)
    (store.root / "deep").mkdir()
    (store.root / "deep" / ".lock").write_text("mine")
    before = content(store.root)
    assert status.main([f"store.dir={store.root}", "prune=yes"]) == 1
    printed = capsys.readouterr()
    assert "notes/.draft, which is no file of a cell: move it away" in printed.err
    assert len(printed.err.splitlines()) == 2 and "0 removed, 2 left" in printed.out
    assert content(store.root) == before and target.read_text() == "mine"
    assert (store.root / "deep" / ".lock").read_text() == "mine"


def test_pruning_removes_what_a_killed_process_left(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    left = store.root / f".archive.{socket.gethostname()}.99999999.leeway"
    (left / "cell").mkdir(parents=True)
    begun = store.root / "tiny-mars-begun"
    begun.mkdir()
    (begun / ".lock").touch()
    (begun / f".cell.yaml.{socket.gethostname()}.99999999.leeway").touch()
    shown(capsys, f"store.dir={store.root}", "prune=yes")
    assert not left.exists() and not begun.exists()


def test_pruning_leaves_what_is_being_written(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    write(store.root, "tiny-mars-old", identity=1)
    with store.cell("tiny-mars-old").lock():
        assert status.main([f"store.dir={store.root}", "prune=yes"]) == 1
    printed = capsys.readouterr()
    assert "is being written by" in printed.err and "0 removed, 1 left" in printed.out
    assert len(Store(store.root).cell("tiny-mars-old").samples()) == 8
