"""A run that is killed goes on where it was: no sample lost, none twice, the same results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from results.store.cells import Store
from results.store.sample import Sample

PROJECT = Path(__file__).parents[2]
TIMINGS = {"prefill_s": 0.0, "decode_s": 0.0}
N = 24


def without_timings(store: Store) -> dict[str, list[Sample]]:
    """Every sample of every cell, without what the clock said."""
    def plain(sample: Sample) -> Sample:
        baseline = None if sample.baseline is None else replace(sample.baseline, **TIMINGS)
        return replace(sample, baseline=baseline, **TIMINGS)

    return {cell.key: [plain(sample) for sample in cell.good_samples()] for cell in store.cells()}


def lines(store: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in store.glob("*/samples.jsonl"))


def test_killed_run_goes_on(command, pair, tmp_path: Path) -> None:
    settings = ["method=sps,mars_sampling", f"n={N}", "decoding.temperature=1", "decoding.max_new_tokens=20", "batch=2"]
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", "-m", *pair, *settings, f"store.dir={killed}", f"output.dir={tmp_path}"],
        cwd=PROJECT, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while lines(killed) < 7:
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    survived = lines(killed)
    assert 7 <= survived < 2 * N and not list(killed.glob("*/summary.json"))
    torn = next(killed.glob("*/samples.jsonl"))
    torn.write_bytes(torn.read_bytes() + b'{"id": "mini_gsm-test-000')  # as if killed in the middle of a line

    resumed = command(*settings, flags=["-m"], store=killed)
    whole = command(*settings, flags=["-m"], store=tmp_path / "whole")
    assert resumed.status == whole.status == 0
    assert without_timings(resumed.store) == without_timings(whole.store)
    for cell in resumed.store.cells():
        assert len({sample.id for sample in cell.samples()}) == len(cell.samples()) == N
        assert len(cell.environment()["earlier"]) == 1, "both runs are on record"
    assert lines(killed) == 2 * N
