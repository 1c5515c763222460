"""python -m bench.exchange: the command over a store that a run wrote, and over files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import exchange
from results.store.cells import Store


@pytest.fixture
def measured(command) -> Store:
    """A method and its baseline, timed."""
    return command("method=sps", "timed=2", "trace=true").store


def test_a_run_is_written_in_every_format(measured: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in exchange.WRITTEN:
        assert exchange.main([f"to={name}", f"store.dir={measured.root}", f"out={tmp_path / name}"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines and all(Path(line.split(": ")[0]).is_file() for line in lines)


def test_a_run_and_its_file_have_one_tau_and_one_speedup(measured: Store, tmp_path: Path,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    """The file's wall time covers the prefill: its speed is the store's from end to end."""
    cell = next(cell for cell in measured.cells() if cell.key != (cell.config() or {})["baseline"])
    out = tmp_path / "out"
    assert exchange.main(["to=spec_bench", f"store.dir={measured.root}", f"out={out}", f"cells={cell.key}"]) == 0
    assert exchange.main(["from=spec_bench", f"file={out / cell.key}.jsonl", f"out={out}",
                          f"baseline={out / cell.key}.baseline.jsonl"]) == 0
    assert "not measured here" in capsys.readouterr().out
    overall = json.loads((out / f"{cell.key}.json").read_text())[0]
    runs = [one.runs for one in cell.timed()]
    samples = {one.id: one for one in cell.good_samples()}
    timed = [samples[one.id] for one in cell.timed()]
    assert overall["tau"] == pytest.approx(sum(map(sum, (one.committed for one in timed)))
                                        / sum(len(one.committed) for one in timed))
    own, base = (sum(arm[side].tokens for arm in runs) / sum(arm[side].prefill_s + arm[side].decode_s for arm in runs)
                 for side in range(2))
    assert overall["speedup"] == pytest.approx(own / base)
