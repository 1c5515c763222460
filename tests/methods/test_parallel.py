"""A model in parts: what cannot be divided is refused, and layers on several devices give the
logits of one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from transformers import GPT2Config

from methods.engine.families import check_division
from methods.engine.language_model import LanguageModel
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
    ("config", "devices", "words"),
    [
        (
            SMOLLM,
            2,
            ("9 heads, 3 key-value heads", "give engine.devices=3, or engine.parallel=layers"),
        ),
        (
            SMOLLM | {"num_key_value_heads": 1},
            3,
            ("1 key-value heads", "give engine.parallel=layers"),
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(
    config: dict, devices: int, words: tuple[str, ...]
) -> None:
    check_division("it", SMOLLM, 3)
    with pytest.raises(ModelError) as refused:
        check_division("it", config, devices)
    assert all(word in str(refused.value) for word in words) and "\n" not in str(refused.value)


def test_embedding_and_head_are_whole_on_every_rank_and_a_model_without_a_plan_is_refused() -> None:
    plan = plan_of(language_model("llama").model.config)
    assert plan["model.layers.*.self_attn.q_proj"] == "colwise"
    assert plan["lm_head"] == plan["model.embed_tokens"] == WHOLE
    with pytest.raises(ModelError, match="no plan that divides a gpt2 model"):
        plan_of(GPT2Config())


def test_a_divided_model_lends_no_layers() -> None:
    model = replace(language_model("llama"), divided=cast(Divided, object()))
    with pytest.raises(ModelError, match="runs layers of its target"):
        model.first_layers(1)


def saved(model: LanguageModel, folder: Path) -> None:
    """A checkpoint of the model, with the embedded target's tokenizer."""
    model.model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, folder)


@pytest.mark.parametrize("kind", ["llama", "mixtral"])
@torch.inference_mode()
def test_layers_on_several_devices_give_the_logits_of_one(kind: str, tmp_path: Path) -> None:
    """On the CPU all stages lie on one device, so that the bits are equal; mixtral has no lean
    decoder."""
    saved(language_model(kind, layers=5), tmp_path)
    one, spread = (load_model(str(tmp_path), devices=devices) for devices in (1, 3))
    assert spread.stages == [0, 0, 1, 1, 2] and isinstance(spread.lean, SpreadDecoder) == (
        kind == "llama"
    )
    rows = prompts(2)
    caches = [model.new_cache(2, 64) for model in (one, spread)]
    assert isinstance(caches[1], SpreadCache) and caches[0].nbytes == caches[1].nbytes
    firsts = [
        model.prefill(rows, cache).logits
        for model, cache in zip((one, spread), caches, strict=True)
    ]
    assert torch.equal(*firsts)
    tree = {
        "ancestors": torch.tensor([[[1, 0, 0], [1, 1, 0], [1, 0, 1]]], dtype=torch.bool),
        "depth": torch.tensor([[0, 1, 1]]),
    }
    for model, cache in zip((one, spread), caches, strict=True):
        model.forward(torch.tensor([[5, 6, 7], [8, 9, 10]]), cache, **tree)
        cache.compact(torch.tensor([[0, 2], [0, 1]]))
        cache.commit([2, 2])
    after = [
        model.forward(torch.tensor([[3], [4]]), cache, features=(1, 4), hidden=True)
        for model, cache in zip((one, spread), caches, strict=True)
    ]
    assert all(
        torch.equal(getattr(after[0], name), getattr(after[1], name))
        for name in ("logits", "hidden", "features")
    )
