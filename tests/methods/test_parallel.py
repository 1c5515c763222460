"""A model in parts: what cannot be divided is refused, and layers on several devices give the
logits of one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from transformers import GPT2Config

from methods.engine.families import check_division
from methods.engine.loading import load_model
from methods.engine.source import ModelError
from methods.engine.spread import SpreadCache, SpreadDecoder
from methods.engine.tensor import WHOLE, Divided, plan_of
from tests.helpers.tiny_models import language_model, prompts

TINY = Path(__file__).parents[2] / "models" / "tiny" / "target"
SMOLLM = {
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 48,
}


@pytest.mark.parametrize(
    ("divide", "words"),
    [
        (
            lambda: check_division("it", SMOLLM, 2),
            "9 heads, 3 key-value heads, .* give engine.devices=3, or engine.parallel=layers",
        ),
        (
            lambda: check_division("it", SMOLLM | {"num_key_value_heads": 1}, 3),
            "1 key-value heads, .* among 3; give engine.parallel=layers",
        ),
        (lambda: plan_of(GPT2Config()), "no plan that divides a gpt2 model"),
        (
            lambda: replace(language_model("llama"), divided=cast(Divided, object())).first_layers(
                1
            ),
            "runs layers of its target",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(divide: Callable[[], object], words: str) -> None:
    with pytest.raises(ModelError, match=words) as refused:
        divide()
    assert "\n" not in str(refused.value)


def test_what_is_divided() -> None:
    """Embedding and head are whole on every rank."""
    check_division("it", SMOLLM, 3)
    plan = plan_of(language_model("llama").model.config)
    assert plan["model.layers.*.self_attn.q_proj"] == "colwise"
    assert plan["lm_head"] == plan["model.embed_tokens"] == WHOLE


@pytest.mark.parametrize("kind", ["llama", "mixtral"])
@torch.inference_mode()
def test_layers_on_several_devices_give_the_logits_of_one(kind: str, tmp_path: Path) -> None:
    """On the CPU all stages lie on one device, so that the bits are equal; mixtral has no lean
    decoder."""
    language_model(kind, layers=5).model.save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, tmp_path)
    models = [load_model(str(tmp_path), devices=devices) for devices in (1, 3)]
    spread = models[1]
    assert spread.stages == [0, 0, 1, 1, 2] and isinstance(spread.lean, SpreadDecoder) == (
        kind == "llama"
    )
    rows = prompts(2)
    caches = [model.new_cache(2, 64) for model in models]
    assert isinstance(caches[1], SpreadCache) and caches[0].nbytes == caches[1].nbytes
    tree = {
        "ancestors": torch.tensor([[[1, 0, 0], [1, 1, 0], [1, 0, 1]]], dtype=torch.bool),
        "depth": torch.tensor([[0, 1, 1]]),
    }
    found = []
    for model, cache in zip(models, caches, strict=True):
        first = model.prefill(rows, cache).logits
        model.forward(torch.tensor([[5, 6, 7], [8, 9, 10]]), cache, **tree)
        cache.compact(torch.tensor([[0, 2], [0, 1]]))
        cache.commit([2, 2])
        after = model.forward(torch.tensor([[3], [4]]), cache, features=(1, 4), hidden=True)
        found.append((first, after.logits, after.hidden, after.features))
    assert all(map(torch.equal, *found))
