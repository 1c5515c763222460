"""Real schedulers on this machine: their stores equal that of one process, also where a worker was killed half-way."""

from __future__ import annotations

import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.run.launch import slurm as launcher
from results.store.claims import Holder
from tests.attack.stores import Decoded, decoded, difference, doubled
from tests.helpers import slurm
from tests.helpers.killed_worker import Killer, kill

pytestmark = pytest.mark.cluster
SWEEP = "method=sps,mars", "task=mini_gsm,mini_chat", "n=8", "timed=2", "decoding.max_new_tokens=24", "quality_batch=1"


@pytest.fixture
def expected(command, tmp_path: Path) -> Decoded:
    """What one process decodes."""
    assert command(*SWEEP, flags=["-m"], store=tmp_path / "alone").status == 0
    return decoded(tmp_path / "alone")


def assert_equal(result, expected: Decoded) -> None:
    """The same cells with the same tokens, each prompt once, timed beside other workers."""
    assert difference(decoded(result.store.root), expected) == "" and doubled(result.store.root) == ""
    assert all(row.shared for cell in result.cells for row in cell.timed()) and result.cells
    assert [cell.summary().timed for cell in result.cells] == [2] * 4


@pytest.mark.skipif(find_spec("ray") is None, reason="no scheduler: ray is not installed (pip install -e .[cluster])")
def test_ray_resumes_the_rotation_of_a_worker_that_was_killed(command, tmp_path: Path, expected: Decoded) -> None:
    store = tmp_path / "ray"
    with Killer(store) as killer:
        result = command(*SWEEP, "launch=ray", "launch.parallel=2", flags=["-m"], store=store)
    assert result.status == 0, result.err
    assert killer.killed is not None and killer.killed.process != os.getpid()
    assert_equal(result, expected)


@pytest.mark.skipif(find_spec("submitit") is None, reason="no scheduler: submitit is not installed")
@pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "-")
def test_slurm_says_which_task_was_cancelled_and_the_same_command_resumes(command, tmp_path: Path, monkeypatch,
                                                                           expected: Decoded) -> None:
    monkeypatch.setattr(launcher, "POLL_S", 0.5)
    monkeypatch.setattr(launcher, "LATE_S", 2.0)
    store, given = tmp_path / "slurm", (*SWEEP, "launch=slurm", "launch.parallel=2")
    with slurm.slurm():
        with Killer(store, _cancel) as killer:
            stopped = command(*given, flags=["-m"], store=store)
        assert killer.killed is not None and stopped.status == 1
        failed = {line.split(": ")[1] for line in stopped.err.splitlines() if line.startswith("failed: ")}
        assert failed and failed <= set(killer.killed.cells), stopped.err
        assert re.search(r"ended without a result \((cancelled|failed)\); log: ", stopped.err), stopped.err
        assert not difference(decoded(store), expected, complete=False), "what was decoded stays"
        result = command(*given, flags=["-m"], store=store)
    assert result.status == 0, result.err
    assert_equal(result, expected)


def _cancel(holder: Holder) -> None:
    """scancel the task that holds a rotation, without the second that Slurm leaves it to end by itself."""
    variables = dict(line.partition("=")[::2] for line in
                     Path(f"/proc/{holder.process}/environ").read_text().split("\0"))
    subprocess.run(["scancel", variables["SLURM_JOB_ID"]], check=True)
    kill(holder)
