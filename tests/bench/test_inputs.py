"""Folders that a dry run refuses, words that other programs give, and what a kill leaves of a baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.config.compose import compose_command, composer
from bench.config.errors import ConfigError
from bench.config.settings import Wandb
from bench.run.trackers import About, TrackerRun
from tests.helpers.summaries import written


@pytest.mark.parametrize("words", [
    ("method=ar", "store.dir=FILE/s"), ("method=ar", "store.dir=FILE"), ("method=ar", "store.dir=/proc/none/s"),
    ("method=ar", f"store.dir=NEW/{'x' * 300}"), ("method=ar", "store.dir=LINK"),
    ("+sweep=draft_length", "task=mini_gsm", "draft.length=2,3", "output.dir=FILE/o"),
    ("report=mars_table1", "output.dir=FILE/o")], ids=" ".join)
def test_a_dry_run_refuses_what_the_run_refuses(command, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    places = {"FILE": tmp_path / "file", "NEW": tmp_path / "new", "LINK": tmp_path / "link"}
    given = list(words)
    for name, place in places.items():
        given = [word.replace(name, str(place)) for word in given]
    result = command(*given, "dry_run=true")
    key = given[-1].partition("=")[0]
    assert result.status == 2 and result.err.count("\n") == 1 and f"give another {key}" in result.err, result.err
    assert not (tmp_path / "new").exists()


def test_a_dry_run_makes_no_folder(command, tmp_path: Path) -> None:
    result = command("method=ar", "dry_run=true", f"store.dir={tmp_path / 'a' / 'b'}")
    assert result.status == 0 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("argv", "expected"), [
    (["--rule.theta=0.9", "method=mars"], ["rule.theta=0.9", "method=mars"]), (["--seed=3"], ["seed=3"]),
    (["seed=3", "--config-dir=FOLDER", "n=2"], ["seed=3", "n=2"]), (["--run", "n=2"], ["n=2"])])
def test_flags_and_overrides_come_in_any_order(argv: list[str], expected: list[str], tmp_path: Path) -> None:
    """An agent of W&B's sweeps gives each override as a flag."""
    found: list[list[str]] = []
    words = [word.replace("FOLDER", str(tmp_path)) for word in argv]
    compose_command("config", words, lambda command, _: found.append(command.overrides))
    assert found == [expected]


@pytest.mark.parametrize("argv", [["--rule.theta"], ["--no-such-flag", "seed=1"]])
def test_an_unknown_flag_is_one_line(argv: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"unrecognized arguments: .*; see --help"):
        compose_command("config", argv, lambda command, _: None)


def test_two_of_hydras_own_flags_are_one_line() -> None:
    with pytest.raises(ConfigError, match="Only one of --run, --multirun, --cfg"):
        compose_command("config", ["-m", "--cfg", "job"], lambda command, _: None)


def test_a_value_with_an_equals_sign_is_told_how_to_be_quoted() -> None:
    with composer() as hydra:
        with pytest.raises(ConfigError, match=r"""give store.dir='"/a/x=1"'$|give store.dir='"/a/x=1"'\)$"""):
            hydra.point(["store.dir=/a/x=1"])
        assert hydra.point(['store.dir="/a/x=1"']).settings.store.dir == Path("/a/x=1")


@pytest.mark.parametrize("variable", [None, "elsewhere"])
def test_files_of_wandb_lie_below_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None,
                                             ) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_DIR", raising=False)
    if variable:
        (tmp_path / variable).mkdir()
        monkeypatch.setenv("WANDB_DIR", str(tmp_path / variable))
    asked: list[str] = []

    class Stop(Exception):
        pass

    def init(**options: object) -> None:
        asked.append(str(options["dir"]))
        raise Stop

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setattr(wandb, "setup", lambda **options: None)
    with pytest.raises(Stop):
        TrackerRun("wandb", About("cell", "cell", None, {}, tmp_path / "out"), Wandb())
    assert asked == [str(tmp_path / (variable or "out"))] and (tmp_path / "out").is_dir()


def test_the_summary_of_a_baseline_that_a_kill_left_out_is_made(command) -> None:
    first = command("method=mars", "timed=0")
    [baseline] = [cell for cell in first.store.cells() if cell.key == first.cell.config()["baseline"]]
    before = (baseline.path / "samples.jsonl").read_bytes()
    wanted = written(baseline)
    assert wanted is not None
    (baseline.path / "summary.json").unlink()
    again = command("method=mars", "timed=0")
    assert again.status == 0 and written(again.store.cell(baseline.key)) == wanted
    assert (baseline.path / "samples.jsonl").read_bytes() == before, "nothing was decoded again"
