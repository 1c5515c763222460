"""Cells on another machine: python -m bench.cost, and reports with cost=NAME."""

from __future__ import annotations

import json

import pytest

from bench import cost
from bench.config.compose import composer
from bench.run.session import Session
from tests.bench.conftest import Command
from tests.helpers.summaries import written

CELL = ("drafter=eagle3", "drafter.tree=chain", "draft.length=3", "task=mini_gsm", "n=4", "timed=2", "trace=false",
        "decoding.max_new_tokens=12", "decoding.temperature=1")


def test_a_cell_on_another_machine(command: Command, pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Its clock is the profile's alone: other speeds than those measured here, the same τ, over all prompts."""
    result = command(*pair, *CELL, "rule=lossless")
    store = f"store.dir={result.store.root}"
    capsys.readouterr()
    plot = result.store.root / "predicted.png"
    assert cost.main(["cost=h100_llama31_8b", store, "summary=json", f"plot={plot}"]) == 0
    assert all(plot.with_suffix(suffix).stat().st_size > 2000 for suffix in (".png", ".pdf", ".svg"))
    [row] = map(json.loads, capsys.readouterr().out.splitlines())
    assert row["lossless"] and row["tau"] == written(result.cell).tau
    assert row["predicted"] is not None and row["measured"] == pytest.approx(written(result.cell).answer_speedup)
    assert row["interval"][0] <= row["modelled"] <= row["interval"][1]
    with composer() as hydra:
        line = [*pair, *CELL, "rule=lossless", store]
        there = Session(hydra.settings([*line, "cost=h100_llama31_8b"])).compared(hydra.point(line).cell)
    assert there is not None and there.timed == there.n == 4 and there.phases is None
    assert there.tau == row["tau"] and there.answer_speedup == pytest.approx(row["modelled"])
    assert written(result.cell).timed == 2, "what was measured stays as it is"


@pytest.mark.parametrize(("words", "said"), [
    ([], "cost=null: names no machine; give cost=NAME"), (["cost=nowhere"], "cost=nowhere"),
    (["cost=h100_llama31_8b", "cells=x"], "no complete cell with a draft whose name contains 'x'")])
def test_refusals(words: list[str], said: str, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cost.main([*words, f"store.dir={tmp_path}"]) == 2
    message = capsys.readouterr().err.strip()
    assert said in message and "\n" not in message


@pytest.mark.parametrize(("words", "said"), [
    (["to=cost/mine.txt"], "to=cost/mine.txt: must be a YAML file"),
    (["to=cost/mine.yaml", "--check", "nowhere"], "--check nowhere: no such folder"),
    (["to=cost/mine.yaml", "--batches", "0"], "batches")])
def test_refused_profiles(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cost.measure_profile(words) == 2
    message = capsys.readouterr().err.strip()
    assert said in message and "\n" not in message
