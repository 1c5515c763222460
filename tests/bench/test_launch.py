"""Rotations as units of work: their order, workers of this machine, and what a command refuses before it starts one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.config import settings as launchers
from bench.config.compose import composer
from bench.run import launch, pool
from bench.run.complete import Passes
from bench.run.launch import complete, works_of
from bench.run.models import ModelPool
from results.store.cells import Store
from results.store.files import rotation_held
from tests.helpers import dying
from tests.helpers.stores import decoded, difference, doubled

SWEEP = "method=sps,mars", "task=mini_gsm,mini_chat"
SIZE = "n=8", "timed=2", "decoding.max_new_tokens=24"
PASSES = Passes(frozenset(), frozenset(), 16, None)


@pytest.fixture
def cells(pair: list[str]):
    with composer() as hydra:
        yield lambda *overrides: [point.cell for point in hydra.command(["-m", *pair, *overrides]).points]


def test_rotations_of_a_pair_come_together_and_the_longest_first(cells, tmp_path: Path) -> None:
    common = "method=sps,mars", "n=4"
    small = cells(*common, "task=mini_gsm,mini_chat", "decoding.max_new_tokens=8", "pair.name=small")
    large = cells(*common, "task=mini_gsm,mini_code", "decoding.max_new_tokens=99")
    works = works_of([*large[:2], *small, *large[2:]], PASSES, Store(tmp_path))
    assert [work.pair.name for work in works] == ["local", "local", "small", "small"]
    assert [len(work.cells) for work in works] == [2] * 4
    assert [work.tokens for work in works] == [2 * 4 * 99, 2 * 4 * 99, 2 * 4 * 8, 2 * 4 * 8]
    short, long = (cells("method=sps", f"task={task}", f"n={n}", "decoding.max_new_tokens=8")
                   for task, n in (("mini_gsm", 4), ("mini_chat", 9)))
    assert [work.cells[0].n for work in works_of([*short, *long], PASSES, Store(tmp_path))] == [9, 4]


def test_a_rotation_that_another_process_holds_is_left_alone(cells, tmp_path: Path) -> None:
    [work] = works_of(cells("method=sps,mars", "n=1", "decoding.max_new_tokens=8"), PASSES, Store(tmp_path))
    with rotation_held(tmp_path, work.cells[0].rotation_key, ["x"]):
        assert set(complete(work, ModelPool())) == {cell.name for cell in work.cells}
    assert Store(tmp_path).cells() == [], "not a part of it is measured here"
    assert complete(work, ModelPool()) == ()
    assert [len(Store(tmp_path).cell(cell.name).timed()) for cell in work.cells] == [1, 1]


def test_gpus_and_cores_are_dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert [share["CUDA_VISIBLE_DEVICES"] for share in pool.shares(4, 1)] == ["4", "5", "6", "7"]
    assert [share["CUDA_VISIBLE_DEVICES"] for share in pool.shares(2, 2)] == ["4,5", "6,7"]
    assert [share["CUDA_VISIBLE_DEVICES"] for share in pool.shares(1, 2)] == ["4,5,6,7"]
    assert [share["CUDA_VISIBLE_DEVICES"] for share in pool.shares(3, 2)] == ["4,5", "6,7", "4,5"]
    assert {int(share["OMP_NUM_THREADS"]) for share in pool.shares(64, 1)} == {1}


@pytest.mark.parametrize("name", ["slurm", "ray"])
def test_a_missing_package_is_one_line(command, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(launchers, "find_spec", lambda name: None)
    result = command("method=sps", f"launch={name}")
    assert result.status == 2 and result.err.startswith(f"error: launch={name}: ") and "[cluster]" in result.err


@pytest.mark.slow
def test_workers_of_this_machine_fill_the_store_as_one_process_does(command, tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch,
                                                                    caplog: pytest.LogCaptureFixture) -> None:
    """One dies after two samples of mini_gsm, which another goes on with; all die of mini_chat, which fails alone."""
    alone = command(*SWEEP, *SIZE, flags=["-m"], store=tmp_path / "alone")
    assert alone.status == 0 and not any(row.shared for cell in alone.cells for row in cell.timed())
    monkeypatch.setattr(launch, "worker", dying.worker)
    monkeypatch.setattr(launch, "Child", lambda method, *given: pool.Child("forkserver", *given))  # torch imported once
    given = (*SWEEP, *SIZE, "quality_batch=1", "launch.parallel=2")
    spread = command(*given, flags=["-m"], store=tmp_path / "spread")
    assert spread.status == 1 and (tmp_path / "died").exists()
    assert caplog.text.count(": resuming ") == 1 + pool.MOST_DEATHS - 1
    assert spread.err.count("failed: ") == spread.err.count("-mini_chat-") == 2 and "processes died" in spread.err
    assert all("-mini_gsm-" in cell.key and cell.failure() is None for cell in spread.store.cells())
    monkeypatch.undo()
    spread = command(*given[:-1], flags=["-m"], store=tmp_path / "spread")
    assert spread.status == 0, "the same command tries again"
    assert difference(decoded(tmp_path / "spread"), decoded(tmp_path / "alone")) == ""
    assert doubled(tmp_path / "spread") == ""
    for cell in spread.cells:
        if "-mini_gsm-" in cell.key:
            assert all(row.shared for row in cell.timed())
            assert "launch.parallel=2" in cell.environment()["argv"], "the command, not the worker's"
