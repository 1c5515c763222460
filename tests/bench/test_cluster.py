"""Schedulers: their stores equal that of one process, also where a worker was killed half-way. Ray is real; Slurm's
commands are scripts that start the tasks on this machine."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.run import launch as launcher
from tests.helpers import dying
from tests.helpers.stores import Decoded, decoded, difference, doubled
from tests.helpers.summaries import written

pytestmark = pytest.mark.slow
NO_RAY, RAY = find_spec("ray") is None, "no scheduler: ray is not installed (pip install -e .[cluster])"
NO_SUBMITIT, SUBMITIT = find_spec("submitit") is None, "no scheduler: submitit is not installed"
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
    assert [written(cell).timed for cell in result.cells] == [2] * 4


@pytest.mark.skipif(NO_RAY, reason=RAY)
def test_ray_resumes_the_rotation_of_a_worker_that_was_killed(command, tmp_path: Path, expected: Decoded,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "work_of_ray", dying.work_of_ray)
    result = command(*SWEEP, "launch=ray", "launch.parallel=2", flags=["-m"], store=tmp_path / "ray")
    assert result.status == 0 and (tmp_path / "died").exists(), result.err
    assert_equal(result, expected)


SBATCH = """#!/bin/sh
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$1")
cp "$1" "${{0%/*}}/script"
for task in $(seq 0 "${{last:-0}}"); do
  export SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$task SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0
  export SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0
  {task} > /dev/null 2>&1 &
done
echo Submitted batch job 7
"""
SRUN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do
  case "$1" in --output|--error) shift ;; esac
  shift
done
exec "$@"
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Stands in for Slurm: `task` is what sbatch does for each task of an array, `state` what squeue says of it."""
    monkeypatch.setattr(launcher, "POLL_S", 0.5)

    def put(task: str, state: str) -> None:
        programs = {"sbatch": SBATCH.format(task=task), "srun": SRUN, "scancel": "#!/bin/sh\n",
                    "squeue": f"#!/bin/sh\nfor task in 0 1 2 3; do echo 7_$task {state}; done\n"}
        (tmp_path / "bin").mkdir(exist_ok=True)
        for name, text in programs.items():
            (tmp_path / "bin" / name).write_text(text)
            (tmp_path / "bin" / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return put


@pytest.mark.skipif(NO_SUBMITIT, reason=SUBMITIT)
def test_slurm_says_which_task_was_cancelled_and_the_same_command_resumes(command, tmp_path: Path, slurm,
                                                                           monkeypatch) -> None:
    monkeypatch.setattr(launcher, "LATE_S", 0.0)
    cells = "method=sps", "task=mini_gsm,mini_chat", "n=2", "timed=0", "decoding.max_new_tokens=8"
    given = (*cells, "launch=slurm", "launch.parallel=2")
    slurm("true", "CANCELLED")
    stopped = command(*given, flags=["-m"], store=tmp_path / "slurm")
    lines = [line for line in stopped.err.splitlines() if line.startswith("failed: ")]
    assert stopped.status == 1 and len(lines) == 2
    assert all(re.search(r"its Slurm task 7_[01] ended without a result \(cancelled\); log: ", line) for line in lines)
    slurm('sh "${0%/*}/script"', "RUNNING")
    result = command(*given, flags=["-m"], store=tmp_path / "slurm")
    assert result.status == 0, result.err
    assert command(*cells, flags=["-m"], store=tmp_path / "alone").status == 0
    assert difference(decoded(tmp_path / "slurm"), decoded(tmp_path / "alone")) == ""
