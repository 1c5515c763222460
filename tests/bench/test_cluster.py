"""Real schedulers on this machine: their stores equal that of one process, also where a worker was killed half-way."""

from __future__ import annotations

import re
import subprocess
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.run import launch as launcher
from results.store.files import Holder
from tests.helpers import dying, slurm
from tests.helpers.few_cells import few_cells, table
from tests.helpers.killed_worker import Killer, kill
from tests.helpers.stores import Decoded, decoded, difference, doubled
from tests.helpers.summaries import written

pytestmark = pytest.mark.slow
NO_RAY, RAY = find_spec("ray") is None, "no scheduler: ray is not installed (pip install -e .[cluster])"
NO_SLURM = "no scheduler: submitit is not installed" if find_spec("submitit") is None else slurm.missing()
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


@pytest.mark.slurm
@pytest.mark.skipif(bool(NO_SLURM), reason=NO_SLURM or "-")
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


@pytest.mark.parametrize("launch", [
    "local", pytest.param("slurm", marks=[pytest.mark.slurm,
                                          pytest.mark.skipif(bool(NO_SLURM), reason=NO_SLURM or "-")])])
def test_a_report_is_the_same_whatever_runs_it(command, tmp_path: Path, monkeypatch, launch: str) -> None:
    """Eight cells of MARS Table 1 in two rotations: all but the times, which say that the machine was shared."""
    monkeypatch.setattr(launcher, "POLL_S", 0.5)
    flags = few_cells(tmp_path, "mars_table1", Method=("Autoregressive", "SpS", "EAGLE-3", "MARS, released"),
                      Task=("mini_gsm", "mini_chat"))
    given = ("report=few_cells", "pair=tiny", "n=2", "timed=1", "decoding.max_new_tokens=16")
    with slurm.slurm() if launch == "slurm" else nullcontext():
        for folder, more in ((tmp_path / "one", ()), (tmp_path / "many", (f"launch={launch}", "launch.parallel=2"))):
            result = command(*given, *more, f"output.dir={folder / 'out'}", flags=flags, store=folder / "store")
            assert result.status == 0, result.err
    assert difference(decoded(tmp_path / "many" / "store"), decoded(tmp_path / "one" / "store")) == ""
    one, many = (table(tmp_path / name / "out") for name in ("one", "many"))
    assert list(map(without_times, one)) == list(map(without_times, many))
    assert {row["value_name"] for row in many} >= {"tau", "speedup"}
    assert all(("other workers" in row["notes"]) == (row["value_name"] == "speedup") for row in many if row["session"])
    assert not any("other workers" in row["notes"] for row in one)


def without_times(row: dict[str, str]) -> dict[str, str]:
    """A row of a report, without what the clock said."""
    timed = ("session", "date", "notes", "best") + (("value", "ci_low", "ci_high", "relative_half_width", "interval")
                                                    if row["value_name"] == "speedup" else ())
    return {name: value for name, value in row.items() if name not in timed}


def _cancel(holder: Holder) -> None:
    """scancel the task that holds a rotation, without the second that Slurm leaves it to end by itself."""
    variables = dict(line.partition("=")[::2] for line in
                     Path(f"/proc/{holder.process}/environ").read_text().split("\0"))
    subprocess.run(["scancel", variables["SLURM_JOB_ID"]], check=True)
    kill(holder)
