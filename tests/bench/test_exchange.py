"""python -m bench.exchange: the command over a store that a run wrote, and over files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import exchange
from results.exchange.imported import imported_folders
from results.exchange.registry import names
from results.store.cells import Store

FILES = Path(__file__).parents[1] / "results" / "exchange_files"


@pytest.fixture
def measured(command) -> Store:
    """A method and its baseline, timed."""
    return command("method=sps", "timed=2", "trace=true").store


def test_a_run_is_written_in_every_format(measured: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in names():
        assert exchange.main([f"to={name}", f"store.dir={measured.root}", f"out={tmp_path / name}"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines and all(Path(line.split(": ")[0]).is_file() for line in lines)


def test_a_run_and_its_file_have_one_tau_and_one_speedup(measured: Store, tmp_path: Path, pair_folder: Path,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    """The file's wall time covers the prefill: its speed is the store's from end to end."""
    cell = next(cell for cell in measured.cells() if cell.key != (cell.config() or {})["baseline"])
    out, into = tmp_path / "out", tmp_path / "imported"
    assert exchange.main(["to=spec_bench", f"store.dir={measured.root}", f"out={out}", f"cells={cell.key}"]) == 0
    assert exchange.main(["from=spec_bench", f"file={out / cell.key}.jsonl", f"into={into}",
                          f"baseline={out / cell.key}.baseline.jsonl", f"tokenizer={pair_folder / 'target'}"]) == 0
    printed = capsys.readouterr().out
    assert "not measured here" in printed and "imported: " in printed
    overall = next(folder.about().cells[0] for folder in imported_folders(into) if folder.about().baseline)
    runs = [one.runs for one in cell.timed()]
    samples = {one.id: one for one in cell.good_samples()}
    timed = [samples[one.id] for one in cell.timed()]
    assert overall.tau == pytest.approx(sum(map(sum, (one.committed for one in timed)))
                                        / sum(len(one.committed) for one in timed))
    own, base = (sum(arm[side].tokens for arm in runs) / sum(arm[side].prefill_s + arm[side].decode_s for arm in runs)
                 for side in range(2))
    assert overall.speedup == pytest.approx(own / base)
    assert set(overall.speed_script) == {"tokens_per_s", "baseline_tokens_per_s", "speedup", "mean_accepted"}


def test_an_imported_file_is_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    into = tmp_path / "imported"
    assert exchange.main(["from=vllm", f"file={FILES / 'vllm.jsonl'}", f"into={into}"]) == 0
    assert "left out: 1 × metrics.speculative_decoding" in capsys.readouterr().out
    assert exchange.main(["to=aiperf", f"store.dir={into}", f"out={tmp_path / 'out'}"]) == 0
    [file] = (tmp_path / "out").glob("imported-vllm-*.jsonl")
    assert file.read_text().count('"spec_decode_acceptance"') == 2


@pytest.mark.parametrize(("given", "complaint"), [
    ([], "give to=FORMAT or from=FORMAT; formats: aiperf, lm_eval, parquet, spec_bench, vllm"),
    (["to=vllm", "from=vllm"], "to=vllm from=vllm: two directions; give to=FORMAT or from=FORMAT"),
    (["to=eagle"], "to=eagle: no such format; there are aiperf, "), (["from=vllm"], "from=vllm: give the file to read"),
    (["from=vllm", "file=nowhere.jsonl"], "nowhere.jsonl: cannot be read: No such file or directory"),
    (["from=vllm", "file=."], ".: cannot be read: Is a directory"),
    (["from=parquet", "file=x"], "x: cannot be read"), (["to=vllm", "store.dir=nowhere"], "store.dir=nowhere: no such"),
    (["to=vllm", "prompts=some"], "prompts=some"), (["to=vllm", "cells=nothing*"], "no cell with answers matches"),
    (["from=spec_bench", f"file={FILES / 'vllm.jsonl'}"], "vllm.jsonl line 1: question_id: Field required"),
    (["from=spec_bench", f"file={FILES / 'eagle.jsonl'}", "tokenizer=nowhere"], "nowhere: no tokenizer.json"),
])
def test_wrong_commands(given: list[str], complaint: str, measured_nothing: list[str], tmp_path: Path,
                        capsys: pytest.CaptureFixture[str]) -> None:
    rest = [one for one in measured_nothing if one.split("=")[0] not in {line.split("=")[0] for line in given}]
    assert exchange.main([*given, *rest]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error:") and complaint in line
    assert not list(tmp_path.glob("imported/*"))


@pytest.fixture
def measured_nothing(tmp_path: Path) -> list[str]:
    """Folders for a command that is refused: an empty store."""
    (tmp_path / "store").mkdir()
    return [f"store.dir={tmp_path / 'store'}", f"into={tmp_path / 'imported'}", f"out={tmp_path / 'out'}"]
