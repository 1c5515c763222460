"""Cells on another machine: python -m bench.cost, and reports with cost=NAME."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from bench import cost
from bench.config.compose import composer
from bench.config.cost_file import load
from bench.config.paths import CONF
from bench.run.session import Session
from results.metrics.cost import check_of
from results.store.cells import Store
from tests.bench.conftest import Command
from tests.helpers.summaries import written

CELL = ("drafter=eagle3", "drafter.tree=chain", "draft.length=3", "task=mini_gsm", "n=4", "timed=2", "trace=false",
        "decoding.max_new_tokens=12", "decoding.temperature=1")


def test_a_cell_on_another_machine(command: Command, pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Its clock is the profile's alone: other speeds than those measured here, the same τ, over all prompts."""
    result = command(*pair, *CELL, "rule=lossless")
    store = f"store.dir={result.store.root}"
    capsys.readouterr()
    plot, here = result.store.root / "predicted.png", f"cost.machine={cost.processor(result.cell.environment())}"
    assert cost.main(["cost=epyc_tiny", here, store, "summary=json", f"plot={plot}"]) == 0
    [row] = map(json.loads, capsys.readouterr().out.splitlines())
    assert row["predicted"] is not None and row["measured"] == pytest.approx(written(result.cell).answer_speedup)
    assert cost.main(["cost=h100_llama31_8b", store, "summary=json"]) == 0
    assert all(plot.with_suffix(suffix).stat().st_size > 2000 for suffix in (".png", ".pdf", ".svg"))
    [row] = map(json.loads, capsys.readouterr().out.splitlines())
    assert row["lossless"] and row["tau"] == written(result.cell).tau
    assert row["predicted"] is row["measured"] is None, "timings of this machine say nothing of an H100"
    assert row["range"][0] <= row["modelled"] < row["range"][1], "over the profiles of the machine"
    with composer() as hydra:
        line = [*pair, *CELL, "rule=lossless", store]
        there = Session(hydra.settings([*line, "cost=h100_llama31_8b"])).compared(hydra.point(line).cell)
    assert there is not None and there.timed == there.n == 4 and there.phases is None
    assert there.tau == row["tau"] and there.answer_speedup == pytest.approx(row["modelled"])
    assert there.answer_speedup_ci95[0] < there.answer_speedup < there.answer_speedup_ci95[1]
    assert written(result.cell).timed == 2, "what was measured stays as it is"


def test_a_report_of_another_machine_needs_no_clock(command: Command) -> None:
    result = command("report=controls", "cost=h100_llama31_8b", "dry_run=true")
    assert result.status == 0, result.err


@pytest.mark.slow
def test_a_check_is_that_of_the_archive(tmp_path: Path) -> None:
    with tarfile.open(CONF.parent / "results" / "measured" / "smollm2_cpu" / "store.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    profile = load(CONF / "cost" / "epyc_smollm2.yaml")
    found = check_of([(row.predicted, row.measured) for row in cost.rows(Store(tmp_path / "store"), profile, "")])
    assert found is not None and profile.check is not None and found.cells == profile.check.cells
    assert found.model_dump() == pytest.approx(profile.check.model_dump(), abs=6e-4) and profile.check.misses
