"""bench.status: what is done, who works on what, what failed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import status
from results.store.cells import Store
from results.store.files import rotation_held
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
    assert [word for word in row.split() if word.isdigit()] == ["4", "2", "1", "1", "21", "23", "4", "4"]


def test_who_works_on_a_rotation(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    with held(store, "tiny-mars-2", "tiny-mars-9"):
        began(store, "tiny-mars-2", prompts=8, timed=4)
        [line] = shown(capsys, f"store.dir={store.root}", "summary=json")
    row = json.loads(line)
    assert row["running"] == 1 and row["not begun"] == 1 and row["complete"] == 2 and row["failed"] == 1
    assert row["held by"].startswith("process ") and " since " in row["held by"]
    assert (row["answers"], row["of"]) == (21, 27) and (row["timed"], row["of timed"]) == (4, 6)
    assert json.loads(shown(capsys, f"store.dir={store.root}", "summary=json")[0])["held by"] is None
