"""The lean decoder computes what transformers' modules compute, on the same weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from methods.engine import attention
from methods.engine.families import obstacle, resolve
from methods.engine.language_model import ForwardOutput, LanguageModel
from methods.engine.loading import nbytes
from methods.engine.source import ModelError
from methods.trees.draft import Draft
from tests.helpers.tiny_models import ARCHITECTURES, NoTokenizer, language_model

VOCAB, POSITIONS = 61, 96
START = {"original_max_position_embeddings": 24}


def scaled(rope_type: str, **more: Any) -> tuple[str, dict[str, Any]]:
    rope = {"rope_type": rope_type, "rope_theta": 1e4, "factor": 4.0}
    return "llama", {"rope_parameters": rope | more}


FAMILIES = {
    "llama": ("llama", {}),
    "llama, tied, biases": (
        "llama",
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "llama 3 scaling": scaled("llama3", low_freq_factor=1.0, high_freq_factor=4.0, **START),
    "llama, linear": scaled("linear"),
    "llama, dynamic": scaled("dynamic"),
    "llama, yarn": scaled("yarn", **START),
    "llama, longrope": scaled(
        "longrope", short_factor=[1.0] * 4, long_factor=[2.5, 2.0, 1.5, 3.0], **START
    ),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {}),
}


def model(
    family: str, heads: int = 4, groups: int = 2, dtype: torch.dtype = torch.float32
) -> LanguageModel:
    """Random weights and biases, norms that are not one."""
    kind, options = FAMILIES[family]
    config = AutoConfig.for_model(
        kind,
        vocab_size=VOCAB,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=3,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        head_dim=8,
        max_position_embeddings=POSITIONS,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=0,
        **options,
    )
    torch.manual_seed(heads + groups)
    weights = AutoModelForCausalLM.from_config(
        config, attn_implementation=attention.NAME, dtype=dtype
    ).eval()
    with torch.no_grad():
        for name, parameter in weights.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.3)
    return LanguageModel(family, weights, NoTokenizer(), "test", "lean")


def stock(lean: LanguageModel) -> LanguageModel:
    """The same model on transformers' modules, with weights of its own."""
    return LanguageModel(
        lean.source, copy.deepcopy(lean.model), lean.tokenizer, "test", "transformers"
    )


def close(got: Tensor | None, want: Tensor | None, limit: float = 1e-4) -> None:
    assert got is not None and want is not None and got.shape == want.shape
    assert float((got - want).abs().max()) <= limit * float(want.abs().max())


def decoded(
    target: LanguageModel, rows: list[list[int]], tree: Draft, chain: Tensor
) -> list[ForwardOutput]:
    """Prefill, a tree of which a part is kept, and a chain behind it."""
    cache = target.new_cache(len(rows), POSITIONS + 16)
    features = (0, 2, -1)
    prefilled = target.prefill(rows, cache, features=features)
    verified = target.forward(
        tree.tokens,
        cache,
        ancestors=tree.ancestors,
        depth=tree.depth,
        hidden=True,
        features=features,
    )
    kept = [[0, 2] if row % 2 else [0, 1, 3] for row in range(len(rows))]
    cache.compact(torch.tensor([[*nodes, *range(len(nodes), 3)] for nodes in kept]))
    cache.commit(map(len, kept))
    return [
        prefilled,
        verified,
        target.forward(chain, cache, keep=1),
        target.forward(chain, cache, hidden=True),
    ]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
@torch.inference_mode()
def test_outputs_are_those_of_transformers(family: str, data: st.DataObject) -> None:
    heads, groups = data.draw(st.sampled_from([(4, 2), (4, 4), (6, 1)]))
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    seed, chain = data.draw(st.integers(0, 99)), data.draw(st.integers(1, 5))
    random = torch.Generator().manual_seed(seed)
    rows = [torch.randint(VOCAB, (length,), generator=random).tolist() for length in lengths]
    parents = torch.tensor([[-1, 0, 0, 1, 1, 2, 3]])
    tree = Draft.of_parents(torch.randint(VOCAB, (len(rows), 7), generator=random), parents)
    tokens = torch.randint(VOCAB, (len(rows), chain), generator=random)
    lean = model(family, heads, groups)
    assert lean.lean is not None
    for got, want in zip(
        decoded(lean, rows, tree, tokens), decoded(stock(lean), rows, tree, tokens), strict=True
    ):
        close(got.logits, want.logits)
        for mine, theirs in ((got.hidden, want.hidden), (got.features, want.features)):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                close(mine, theirs)


@torch.inference_mode()
def test_the_same_in_bfloat16() -> None:
    lean = model("qwen3", dtype=torch.bfloat16)
    rows, tokens = [[3, 5, 7, 11, 13], [2, 4]], torch.tensor([[1, 2, 3], [4, 5, 6]])
    outputs = []
    for target in (lean, stock(lean)):
        cache = target.new_cache(2, 32)
        target.prefill(rows, cache)
        outputs.append(target.forward(tokens, cache).logits)
    assert outputs[0].dtype == torch.float32
    close(*outputs, limit=0.03)


def test_weights_are_held_once_and_the_modules_still_work() -> None:
    lean = model("llama, tied, biases")
    want, size = lean.model(torch.tensor([[1, 2, 3]])).logits, nbytes(lean.model)
    assert lean.lean is not None
    tensors = (*lean.model.parameters(), *lean.model.buffers())
    storages = [tensor.untyped_storage() for tensor in tensors]
    places = {storage.data_ptr(): storage.nbytes() for storage in storages}
    assert sum(places.values()) == size
    for block in lean.lean.blocks:
        for part in (block.qkv, block.gate_up, block.down, block.out):
            assert part.weight.untyped_storage().data_ptr() in places
    close(lean.model(torch.tensor([[1, 2, 3]])).logits.detach(), want.detach())
    again = LanguageModel("again", lean.model, NoTokenizer(), "test").lean
    first, second = (blocks.blocks[0].qkv.weight.data_ptr() for blocks in (again, lean.lean))
    assert first == second
    loss = lean.model(torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss
    loss.backward()
    assert all(parameter.grad is not None for parameter in lean.model.parameters())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model_type": "gemma2"}, "model_type is gemma2"),
        ({"auto_map": {"AutoModel": "x"}}, "model code"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"model_type": "mistral"}, "sliding window"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8},
            "sliding window",
        ),
        ({"quantization_config": {"bits": 4}}, "quantised"),
    ],
)
def test_other_models_run_through_transformers(changes: dict, why: str) -> None:
    config = {"model_type": "llama", "hidden_act": "silu"} | changes
    assert why in (obstacle(config) or "")
    assert resolve("m", config, "auto") == "transformers"
    with pytest.raises(ModelError, match=f"^m: engine.decoder=lean cannot run it: .*{why}"):
        resolve("m", config, "lean")


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_targets_head_gives_its_own_logits(kind: str) -> None:
    """Caps and scales included, for the last hidden state that rules are given."""
    target = language_model(kind)
    out = target.forward(torch.tensor([[5, 9, 3, 40]]), target.new_cache(1, 8), hidden=True)
    torch.testing.assert_close(target.head(out.hidden), out.logits)
