"""A wrong command is answered by one line and exit status 2, before anything is written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from bench.config.paths import PROJECT
from tests.helpers.commands import run
from tests.helpers.refusals import MAKERS, NAMED, TEXTS, Files, Wrong, rows

PREFIX = {1: "failed: ", 2: "error: "}


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("named"))


@pytest.mark.parametrize("wrong", rows(), ids=lambda wrong: wrong.words[:80])
def test_a_wrong_command(wrong: Wrong, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench"])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    output = tmp_path / "output"
    ended = run(*wrong.given(files, output))
    [line] = ended.err.splitlines()
    assert ended.status == wrong.status and line.startswith(PREFIX[wrong.status])
    assert line.isprintable() and len(line) <= 1500
    assert all(files.filled(text) in line for text in wrong.says), line
    assert not files.marker.exists(), "a file of the user ran code"
    samples = [path for path in output.glob("store/*/samples.jsonl") if b"output_ids" in path.read_bytes()]
    assert not samples and not (wrong.known == "composed" and output.exists()), "it is known before anything is written"


def test_rows_differ_and_name_every_file() -> None:
    every = list(rows())
    assert len({row.words for row in every}) == len(every) and all(row.says for row in every)
    assert {name for row in every for name in NAMED.findall(row.words)} == {*TEXTS, *MAKERS}


def test_one_wrong_point_stops_a_multirun(command, tmp_path: Path) -> None:
    result = command("method=random", "rule.rate=0.5,1.5", flags=["-m"])
    assert result.status == 2 and "rule.rate=1.5" in result.err and len(result.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("sweep", "hint"), [("n=interval(1,3)", "KEY=a,b,c"), ("task=interval(1,3)", "KEY=a,b,c"),
                                             ("task=glob(mini_z*)", "is empty"), ("n=range(3,1)", "is empty")])
def test_a_sweep_without_a_list_of_values(command, tmp_path: Path, sweep: str, hint: str) -> None:
    result = command(sweep, flags=["-m"])
    [line] = result.err.splitlines()
    assert result.status == 2 and line.startswith(f"error: {sweep}: ") and hint in line
    assert not list(tmp_path.iterdir())


def test_vocabulary_mismatch(command, pair_folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in (pair_folder / "draft").iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"vocab_size": 7}))
    result = command(f"pair.draft={other}", "method=sps")
    assert result.status == 2 and "7 entries" in result.err and len(result.err.splitlines()) == 1
    assert command(f"pair.draft={other}", "method=pld", "dry_run=true").status == 0, "prompt lookup runs no draft model"


def test_help_needs_nothing(command) -> None:
    result = command(flags=["--help"])
    assert result.status == 0 and not result.err
    for word in ("pair.target=", "draft.length", "rule.theta", "summary=", "+sweep=", "report=", "mars_released"):
        assert word in result.out
    for option in ("decoding.top_p=1.0", "engine.device=auto", "judge.retries=3", "draft.length=5", "pair.nodes=60"):
        assert option in result.out, "keys and defaults are those of conf/"


def test_dry_run_shows_and_does_not_run(command, tmp_path: Path) -> None:
    result = command("method=mars", "rule.theta=0.85", "dry_run=true")
    assert result.status == 0 and "theta: 0.85" in result.out and "max_new_tokens: 12" in result.out
    assert not list(tmp_path.iterdir())
    several = command("method=sps,pld", "dry_run=true", flags=["-m"])
    assert several.status == 0 and "method=sps" in several.out and "method=pld" in several.out
    assert not list(tmp_path.iterdir())


def test_a_warning_that_many_cells_give_is_shown_once() -> None:
    code = ("import logging; from results.store.errors import log_to_stderr; log_to_stderr(); "
            "[logging.getLogger('methods').warning('tau = %s', x) for x in (2, 2, 3)]")
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["WARNING: tau = 2", "WARNING: tau = 3"]
