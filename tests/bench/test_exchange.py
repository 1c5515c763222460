"""python -m bench.exchange: the command over a store that a run wrote, and over files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import exchange
from results.store.cells import Store

FILES = Path(__file__).parents[1] / "results" / "exchange_files"


@pytest.fixture
def measured(command) -> Store:
    """A method and its baseline, timed."""
    return command("method=sps", "timed=2", "trace=true").store


def test_a_run_is_written_in_every_format(measured: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in exchange.WRITTEN:
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
    [file] = into.glob("imported-spec_bench-*.json")
    overall = json.loads(file.read_text())["cells"][0]
    runs = [one.runs for one in cell.timed()]
    samples = {one.id: one for one in cell.good_samples()}
    timed = [samples[one.id] for one in cell.timed()]
    assert overall["tau"] == pytest.approx(sum(map(sum, (one.committed for one in timed)))
                                        / sum(len(one.committed) for one in timed))
    own, base = (sum(arm[side].tokens for arm in runs) / sum(arm[side].prefill_s + arm[side].decode_s for arm in runs)
                 for side in range(2))
    assert overall["speedup"] == pytest.approx(own / base)
    assert set(overall["speed_script"]) == {"tokens_per_s", "baseline_tokens_per_s", "speedup", "mean_accepted"}


LEFT = "removed; 0.2 was the last version that had it; there is"


@pytest.mark.parametrize(("given", "complaint"), [
    ([], "give to=lm_eval|parquet|spec_bench or from=spec_bench"),
    (["to=parquet", "from=spec_bench"], "to=parquet from=spec_bench: two directions; give to="),
    (["to=eagle"], "to=eagle: no such format; there is to=lm_eval|parquet|spec_bench"),
    (["to=vllm"], f"to=vllm: {LEFT} to=lm_eval|parquet|spec_bench"),
    (["from=aiperf", "file=x"], f"from=aiperf: {LEFT} from=spec_bench"),
    (["from=lm_eval", "file=x"], f"from=lm_eval: {LEFT} from=spec_bench"),
    (["from=parquet", "file=x"], "from=parquet: is only written; read it with datasets.load_dataset"),
    (["from=spec_bench"], "from=spec_bench: give the file to read"),
    (["from=spec_bench", "file=nowhere.jsonl"], "nowhere.jsonl: cannot be read: No such file or directory"),
    (["from=spec_bench", "file=."], ".: cannot be read: Is a directory"),
    (["to=parquet", "store.dir=nowhere"], "store.dir=nowhere: no such"),
    (["to=parquet", "prompts=some"], "prompts=some"),
    (["to=spec_bench", "cells=nothing*"], "no cell with answers matches"),
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
