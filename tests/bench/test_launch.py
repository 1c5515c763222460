"""Groups as units of work: their order, workers of this machine, Ray, and Slurm's commands as
scripts."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec

import pytest

from bench.config import settings as launchers
from bench.run import launch, pool
from bench.run.claims import Passes
from bench.run.launch import complete, works_of
from bench.run.models import ModelPool
from bench.run.run import measure
from results.store.cells import Store
from tests.helpers import dying
from tests.helpers.composing import COMPOSER
from tests.helpers.refusals import FLOOR
from tests.helpers.stores import Decoded, decoded
from tests.helpers.summaries import written
from tests.helpers.tables import rows

PASSES = Passes(frozenset(), frozenset(), 16, None)


@pytest.fixture
def cells(pair):
    return lambda words: COMPOSER.command(["-m", *pair, *words.split()]).cells


def test_rotations_of_a_pair_come_together(cells, tmp_path):
    common = "method=sps,mars n=4"
    small = cells(f"{common} task=mini_gsm,mini_chat decoding.max_new_tokens=8 pair.name=small")
    large = cells(f"{common} task=mini_gsm,mini_code decoding.max_new_tokens=99")
    works = works_of(measure, [*large[:2], *small, *large[2:]], PASSES, Store(tmp_path))
    assert [work.pair.name for work in works] == ["local", "local", "small", "small"]
    assert [len(work.cells) for work in works] == [2] * 4


def test_a_rotation_that_another_process_holds_is_left_alone(cells, tmp_path):
    asked = cells("method=sps,mars n=1 decoding.max_new_tokens=8")
    [work] = works_of(measure, asked, PASSES, Store(tmp_path))
    with Store(tmp_path).cell(work.cells[1].name).lock():
        assert set(complete(work, ModelPool())) == {cell.name for cell in work.cells}
    assert Store(tmp_path).cells() == [], "not a part of it is measured here"
    assert complete(work, ModelPool()) == ()
    assert [len(Store(tmp_path).cell(cell.name).timed()) for cell in work.cells] == [1, 1]


SHARES = """
4 | 1 | 4 5 6 7
2 | 2 | 4,5 6,7
1 | 2 | 4,5,6,7
3 | 2 | 4,5 6,7 4,5
"""
"""Workers, GPUs for a group, those of each worker."""


def test_gpus_and_cores_are_dealt_out(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    for workers, each, gpus in rows(SHARES):
        shares = pool.shares(int(workers), int(each))
        assert [share["CUDA_VISIBLE_DEVICES"] for share in shares] == gpus.split()
    assert {int(share["OMP_NUM_THREADS"]) for share in pool.shares(64, 1)} == {1}


@pytest.mark.parametrize("name", ["slurm", "ray"])
def test_a_missing_package_is_one_line(command, monkeypatch, name):
    monkeypatch.setattr(launchers, "find_spec", lambda name: None)
    line = command(f"method=sps launch={name}", status=2).err
    assert line.startswith(f"error: launch={name}: ") and "[cluster]" in line


@pytest.fixture
def sweep(tmp_path) -> str:
    """Two rotations with a rule outside of the checkout."""
    (tmp_path / "floor.py").write_text(FLOOR)
    return (
        f"-m rule={tmp_path / 'floor.py'}:Floor,lossless task=mini_gsm,mini_chat n=8 timed=2 "
        "decoding.max_new_tokens=24 quality_batch=1"
    )


@pytest.fixture
def expected(command, sweep, tmp_path) -> Decoded:
    """What one process decodes."""
    alone = command(sweep, store=tmp_path / "alone")
    assert not any(row.shared for cell in alone.cells for row in cell.timed())
    return decoded(alone.store.root)


@pytest.mark.slow
def test_workers_of_this_machine_fill_the_store_as_one_process_does(
    command, sweep, tmp_path, expected, monkeypatch, caplog
):
    """One dies after two samples of mini_gsm, which another goes on with; all die of mini_chat,
    which fails alone."""
    with monkeypatch.context() as patch:
        patch.setattr(launch, "worker", dying.worker)
        patch.setattr(
            launch, "Child", lambda method, *given: pool.Child("forkserver", *given)
        )  # torch imported once
        failed = command(sweep, "launch.parallel=2", status=1)
    assert (tmp_path / "died").exists()
    assert caplog.text.count(": resuming ") == 1 + pool.MOST_DEATHS - 1
    assert failed.err.count("failed: ") == failed.err.count("-mini_chat-") == 2
    assert "processes died" in failed.err
    for cell in failed.store.cells():
        assert "-mini_gsm-" in cell.key and cell.failure() is None
        assert "launch.parallel=2" in cell.environment()["argv"], "the command, not the worker's"
    result = command(sweep)  # the same command tries again
    assert decoded(result.store.root) == expected
    for cell in result.cells:
        assert {row.shared for row in cell.timed()} == {"-mini_gsm-" in cell.key}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="no scheduler: ray is not installed")
def test_ray_resumes_the_rotation_of_a_worker_that_was_killed(
    command, sweep, tmp_path, expected, monkeypatch
):
    """The same cells with the same tokens, each prompt once, timed beside other workers."""
    monkeypatch.setattr(launch, "work_of_ray", dying.work_of_ray)
    result = command(sweep, "launch=ray launch.parallel=2")
    assert (tmp_path / "died").exists()
    assert decoded(result.store.root) == expected
    assert all(row.shared for cell in result.cells for row in cell.timed())
    assert [written(cell).timed for cell in result.cells] == [2] * 4


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
def slurm(tmp_path, monkeypatch):
    """Stands in for Slurm: `task` is what sbatch does for each task of an array, `state` what sacct
    says of it."""
    monkeypatch.setattr(launch, "POLL_S", 0.5)

    def put(task: str, state: str) -> None:
        programs = {
            "sbatch": SBATCH.format(task=task),
            "srun": SRUN,
            "scancel": "#!/bin/sh\n",
            "sacct": f"#!/bin/sh\necho 'JobID|State|NodeList'\n"
            f'for task in 0 1 2 3; do echo "7_$task|{state}|"; done\n',
        }
        (tmp_path / "bin").mkdir(exist_ok=True)
        for name, text in programs.items():
            (tmp_path / "bin" / name).write_text(text)
            (tmp_path / "bin" / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    return put


@pytest.mark.slow
@pytest.mark.skipif(find_spec("submitit") is None, reason="no scheduler: no submitit")
def test_slurm_says_which_task_was_cancelled_and_the_same_command_resumes(
    command, tmp_path, slurm, monkeypatch
):
    monkeypatch.setattr("submitit.Job._results_timeout_s", 0)
    (tmp_path / "floor.py").write_text(FLOOR)
    monkeypatch.chdir(tmp_path)  # where the command names a file of its own folder
    cells = "-m rule=floor.py:Floor task=mini_gsm,mini_chat n=2 decoding.max_new_tokens=8"
    words = f"{cells} launch=slurm launch.parallel=2"
    slurm("true", "CANCELLED")
    stopped = command(words, status=1).err.splitlines()
    lines = [line for line in stopped if line.startswith("failed: ")]
    said = r"its Slurm task 7_[01] ended without a result \(cancelled\); log: "
    assert len(lines) == 2 and all(re.search(said, line) for line in lines)
    slurm('sh "${0%/*}/script"', "RUNNING")
    result = command(words)
    alone = command(cells, store=tmp_path / "alone")
    assert decoded(result.store.root) == decoded(alone.store.root)
