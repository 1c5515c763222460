"""What is written down of the machine, and what must never be."""

from __future__ import annotations

import json

import pytest

from bench.config.environment import environment
from bench.config.paths import PROJECT, command_line, portable


def test_environment_is_plain_and_keeps_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    monkeypatch.setenv("WANDB_API_KEY", "wandb_very_secret")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("HOME_ADDRESS", "private")
    found = environment(["bench", "n=3"], "cpu", {"mode": "none"}, {"target": "abc"}, {"target": "one.gguf"})
    written = json.dumps(found)
    assert "very_secret" not in written and "private" not in written
    assert "HF_TOKEN" not in found["variables"] and found["variables"]["TOKENIZERS_PARALLELISM"] == "false"
    assert found["packages"]["transformers"] and found["cpu"]["model"] and found["cpu"]["cores"] >= 1
    assert found["accelerator"] is None and found["models"] == {"target": "abc"} and found["argv"] == ["bench", "n=3"]
    assert found["dequantised"] == {"target": "one.gguf"}
    assert found["code"].startswith("sha256:") and found["code"] == environment([], "cpu", {}, {}, {})["code"]


@pytest.mark.parametrize(("program", "kept"), [
    ("bench/__main__.py", ["python", "-m", "bench"]), ("bench/merge.py", ["python", "-m", "bench.merge"])])
def test_commands_and_paths_name_no_folder_above_the_checkout(program: str, kept: list[str],
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/ada/cache")
    monkeypatch.setenv("HF_HOME", "/home/ada/cache/huggingface")
    words = [str(PROJECT / program), f"store.dir={PROJECT}/outputs/store", "pair.target=/home/ada/cache/leeway/x",
             "data=/data"]
    found = environment(words, "cpu", {}, {}, {})
    assert found["argv"] == [*kept, "store.dir=outputs/store", "pair.target=~/.cache/leeway/x", "data=/data"]
    assert found["variables"]["HF_HOME"] == "~/.cache/huggingface"
    assert str(PROJECT) not in json.dumps(found) and "/home/ada" not in json.dumps(found)
    assert command_line(["/usr/bin/leeway", "n=3"]) == ["/usr/bin/leeway", "n=3"]


def test_a_recorded_cell_holds_paths_of_the_checkout() -> None:
    from bench.config.cell import Cell
    from bench.config.compose import composer

    with composer() as hydra:
        cell = hydra.point(["pair=tiny", "method=mars"]).cell
    record = cell.record()
    assert record["pair"]["target"] == "models/tiny/target" and str(PROJECT) not in json.dumps(record)
    assert Cell.parsed({**record, "n": None, "timed": 0}).name == cell.name, "it is read back as the same cell"
    assert portable({"a": [1, f"{PROJECT}/x"]}) == {"a": [1, "x"]}
