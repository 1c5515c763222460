"""Progress where stderr is no terminal: lines that tell how much of the whole pass is done."""

from __future__ import annotations

import re

import pytest

import bench.run.console as progress


def test_a_line_tells_how_much_of_the_whole_pass_is_done(monkeypatch: pytest.MonkeyPatch,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    with progress.Bars("quality pass, 2 workers", {"": 24}) as bars:
        first, second = bars.row("mini_gsm mars", 20, done=4), bars.row("mini_gsm fsd", 8)
        first.advance(16, [], 1.0)
        second.advance(4, [], 1.0)
        second.advance(4, [], 1.0)
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" ", 1)[1].split(", ")[1] for line in said] == [
        "2 workers: 16 of 24 prompts", "2 workers: 20 of 24 prompts", "2 workers: 24 of 24 prompts"]
    assert [line.split("; ")[1] for line in said] == ["mini_gsm mars", "mini_gsm fsd", "mini_gsm fsd"]
    assert said[-1].endswith("0.0 min left; mini_gsm fsd")


def test_the_time_left_knows_that_trees_are_slower(monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    """8 chains in 80 s, then 2 of 12 trees in 200 s: 1,000 s of work are left where 280 s took 280 s."""
    clock = iter([0.0, 80.0, 80.0, 280.0, 280.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.Bars("quality pass", {"model": 8, "eagle3": 12}) as bars:
        chains, trees = bars.row("sps", 8, kind="model"), bars.row("eagle3", 12, kind="eagle3")
        chains.advance(8, [], 80.0)
        trees.advance(2, [], 200.0)
    assert [line.split(", ")[1].split(";")[0] for line in capsys.readouterr().err.splitlines()] == [
        "2.0 min left", "16.7 min left"]


def test_the_timed_pass_counts_each_prompt_once(command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    said = command("method=sps", "n=3", "timed=2").err
    assert re.findall(r"timed pass.*?: (\d+) of (\d+) prompts", said) == [("1", "2"), ("2", "2")]
