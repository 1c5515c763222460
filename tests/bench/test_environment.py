"""What is written down of the machine, and what must never be."""

from __future__ import annotations

import json

import pytest

from bench.config.environment import HIDDEN, environment, redacted


@pytest.mark.parametrize(("given", "kept"), [
    ("+hub.token=hf_abc", f"+hub.token={HIDDEN}"), ("api_key=abc", f"api_key={HIDDEN}"),
    ("PASSWORD=x", f"PASSWORD={HIDDEN}"), ("decoding.max_new_tokens=12", "decoding.max_new_tokens=12"),
    ("rule.theta=0.9", "rule.theta=0.9"), ("-m", "-m"),
])
def test_secrets_in_arguments(given: str, kept: str) -> None:
    assert redacted(given) == kept


def test_environment_is_plain_and_keeps_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    monkeypatch.setenv("WANDB_API_KEY", "wandb_very_secret")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("HOME_ADDRESS", "private")
    found = environment(["bench", "n=3"], "cpu", {"mode": "none"}, {"target": "abc"}, {"target": "one.gguf"})
    written = json.dumps(found)
    assert "very_secret" not in written and "private" not in written
    assert found["variables"]["HF_TOKEN"] == HIDDEN and found["variables"]["TOKENIZERS_PARALLELISM"] == "false"
    assert found["packages"]["transformers"] and found["cpu"]["model"] and found["cpu"]["cores"] >= 1
    assert found["accelerator"] is None and found["models"] == {"target": "abc"} and found["argv"] == ["bench", "n=3"]
    assert found["dequantised"] == {"target": "one.gguf"}
