"""`python -m bench.microbench` on a small shape: the way that pair=synthetic_8b takes on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import microbench
from bench.dry_run.memory import estimate
from bench.microbench import NODES, composed, main
from methods.batch import Generation
from methods.decode import Limits, Request
from methods.engine import roofline
from methods.engine.loading import load_model
from methods.engine.random_weights import nbytes
from methods.engine.roofline import copy_bandwidth, reads, step_bytes
from tests.helpers.tiny_models import language_model


def test_the_table_and_its_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["pair=synthetic_tiny", "engine.device=cpu", "drafter.total=12", "drafter.depth=2", "drafter.top_k=3"]
    assert main([*given, "--context", "24", "--new", "8", "--repeats", "2", "--batch", "2",
                 "--out", str(tmp_path)]) == 0
    printed, written = capsys.readouterr().out, (tmp_path / "README.md").read_text()
    for words in ("copy bandwidth", "of the copy bandwidth", "cycle: draft", "% of the cycle",
                  "first token, eagle3", "between cycles, autoregressive", "peak memory", "GB", "batch 1 ", "batch 2 ",
                  "Matrix products: plain.",
                  *(f"verify {name}" for name in NODES.values())):
        assert words in printed and words in written, words
    assert "](roofline.png)" in written and (tmp_path / "roofline.png").stat().st_size > 10_000
    assert "total 12" in written and "1.00 of one node" in written
    assert set(json.loads((tmp_path / "environment.json").read_text())["models"]) == {"target", "eagle3"}


@pytest.mark.parametrize(("overrides", "words"), [
    (["pair=synthetic_tiny", "method=ar"], "drafter=none"), (["pair=synthetic_9b"], "did you mean pair=synthetic_8b")])
def test_a_wrong_command_is_one_line(overrides: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(overrides) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and words in line


@pytest.mark.parametrize(("rates", "gone"), [((2, 2, 2), None), ((2, 1, 0.5), 2.0), ((0.5, 2, 2), 1.0)])
def test_the_batch_at_which_the_speedup_is_gone(rates: tuple[float, ...], gone: float | None,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """The second arm's speed is `rates` of the first's at batch 1, 2, 4."""
    def decoded(arm: str, requests: list[Request], limits: Limits) -> list[Generation]:
        speed = 1.0 if arm == "first" else rates[len(requests).bit_length() - 1]
        return [Generation(committed=[3, 1], decode_s=1 / speed) for _ in requests]

    monkeypatch.setattr(microbench, "generate", decoded)
    arms: Any = {"autoregressive": "first", "eagle3": "second"}
    requests = [Request([1, 2], str(row)) for row in range(4)]
    lines = microbench.batch_lines(microbench.batch_rates(arms, requests, Limits(4, frozenset())))
    assert [line.value for line in lines[:3]] == [4 * rate for rate in rates]
    assert [line.value for line in lines[3:]] == ([] if gone is None else [gone])


def test_a_batch_has_the_prompts_of_the_task_and_a_stream_for_each_row() -> None:
    requests = microbench.rows_of(composed(["pair=synthetic_tiny", "method=eagle3", "task=mini_chat"]), 70)
    [number] = {rows for rows in range(1, 70) if requests[rows].input_ids == requests[0].input_ids} or {70}
    assert len({request.key for request in requests}) == 70 and number > 1
    assert all(requests[row].input_ids == requests[row % number].input_ids for row in range(70))


def test_an_autoregressive_step_reads_all_but_the_input_embedding() -> None:
    """2048 x 64 entries of the embedding are not read; 2 x 8 layers x 2 heads x 16 x 4 bytes a cached token are."""
    target = load_model("random:models/shapes/tiny", dtype="float32")
    assert step_bytes(target) == (nbytes(target.model) - 2048 * 64 * 4, 2 * 8 * 2 * 16 * 4)


def test_the_copy_bandwidth_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """and noted in the user's cache; an unreadable note is measured again."""
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path))
    values = iter([3.0, 4.0, 5.0])
    monkeypatch.setattr(roofline, "measured_bandwidth", lambda device: next(values))
    found = []
    for threads in (1, 1, 2):
        copy_bandwidth.cache_clear()
        found.append(copy_bandwidth(torch.device("cpu"), "host, boot", threads))
    assert found == [3.0, 3.0, 4.0]
    for note in (tmp_path / "measured").iterdir():
        note.write_text("{")
    copy_bandwidth.cache_clear()
    assert copy_bandwidth(torch.device("cpu"), "host, boot", 1) == 5.0
    copy_bandwidth.cache_clear()


def test_the_copy_bandwidth_is_that_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "COPY_BYTES", {"cpu": 8 << 20})
    assert 1e8 < roofline.measured_bandwidth(torch.device("cpu")) < 1e13


def test_a_model_that_reads_a_part_of_its_weights_has_no_share() -> None:
    assert reads(language_model("mixtral"), 1, "") is None and reads(language_model("gemma2"), 1, "") is None
    assert reads(language_model("llama"), 4, "") is not None


def test_a_random_head_is_one_of_its_shape_and_the_estimate_knows_it() -> None:
    opened = composed(["pair=synthetic_tiny", "engine.device=cpu"])
    cell, head = opened.cell, opened.method.model
    folders = {role: Path("models/shapes") / name for role, name in (("target", "tiny"), ("eagle3", "tiny_eagle3"))}
    found = {part.role: part for part in estimate(cell, folders, prompt=8).parts}
    assert found["eagle3"].weights == nbytes(head.model)
    cache = head.new_cache(1, estimate(cell, folders, prompt=8).slots)
    assert found["eagle3"].cache == cache.keys.nbytes + cache.values.nbytes
    assert torch.equal(head.to_target, torch.arange(512)) and head.model.t2d.sum() == 512
    assert float(head.model.fc.weight.std()) == pytest.approx(0.02, rel=0.05)
    assert torch.all(head.model.norm.weight == 1)
