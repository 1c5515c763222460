"""Small causal LMs that grow in depth during training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from models.train.pair.induction_init import init_induction

SIZES = {
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "vocabulary": "vocab_size",
}
"""A model's size -> its key in a config.json."""


def new_model(tokenizer: PreTrainedTokenizerBase, *, seed: int, **sizes: int) -> LlamaForCausalLM:
    """A float32 Llama with tied embeddings and `induction_init` weights, which depend on `seed`
    alone. `sizes`: all of `SIZES` but the vocabulary."""
    torch.manual_seed(seed)
    keys: dict[str, Any] = {SIZES[name]: size for name, size in sizes.items()}
    config = LlamaConfig(
        **keys,
        vocab_size=len(tokenizer),
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        dtype="float32",
    )
    model = LlamaForCausalLM(config)
    init_induction(model)
    return model


def existing_model(
    folder: str, tokenizer: PreTrainedTokenizerBase, **sizes: int
) -> LlamaForCausalLM:
    """The float32 weights of a folder on this machine. Raises ValueError where its sizes are not
    the given ones."""
    if not Path(folder, "config.json").is_file():
        raise ValueError(
            f"start={folder}: no such checkpoint; give the folder of a trained model, or null"
        )
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    wrong = []
    for name, size in (sizes | {"vocabulary": len(tokenizer)}).items():
        if (actual := getattr(model.config, SIZES[name])) != size:
            wrong.append(f"{name} {actual}, not {size}")
    if wrong:
        raise ValueError(
            f"start={folder}: its sizes are not the recipe's: {', '.join(wrong)}; change "
            "the recipe's sizes, or give another start=FOLDER"
        )
    return model


def grow(model: LlamaForCausalLM, layers: int) -> LlamaForCausalLM:
    """The same function with more layers (block expansion): copies of each layer follow it with
    zero output projections, so they start as the identity. Raises ValueError unless `layers` is a
    multiple of the present depth."""
    depth = model.config.num_hidden_layers
    if layers % depth:
        raise ValueError(f"layers={layers}: must be a multiple of the present {depth} layers")
    times = layers // depth
    config = LlamaConfig(**{**model.config.to_dict(), "num_hidden_layers": layers})
    grown = LlamaForCausalLM(config)
    state = {k: v for k, v in model.state_dict().items() if not k.startswith("model.layers.")}
    for key, value in model.state_dict().items():
        if not key.startswith("model.layers."):
            continue
        _, _, index, rest = key.split(".", 3)
        for copy in range(times):
            identity = copy > 0 and rest in ("self_attn.o_proj.weight", "mlp.down_proj.weight")
            state[f"model.layers.{int(index) * times + copy}.{rest}"] = (
                torch.zeros_like(value) if identity else value
            )
    grown.load_state_dict(state)
    return grown
