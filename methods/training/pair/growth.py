"""Small causal LMs that grow in depth while they are trained."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from methods.training.pair.induction_init import teach_to_look_up


def new_model(tokenizer: PreTrainedTokenizerFast, *, hidden: int, intermediate: int, heads: int, kv_heads: int,
              layers: int, seed: int) -> LlamaForCausalLM:
    """A float32 Llama with tied embeddings that can look things up (`look_up`); one seed, one set of weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=1024,
        tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, dtype="float32")
    model = LlamaForCausalLM(config)
    teach_to_look_up(model)
    return model


def grow(model: LlamaForCausalLM, layers: int) -> LlamaForCausalLM:
    """The same function with more layers (block expansion): each layer is followed by copies of itself whose output
    projections are zero, so they start as the identity. `layers` must be a multiple of the present depth."""
    depth = model.config.num_hidden_layers
    if layers % depth:
        raise ValueError(f"layers={layers}: growth needs a multiple of the present {depth} layers")
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
            state[f"model.layers.{int(index) * times + copy}.{rest}"] = torch.zeros_like(value) if identity else value
    grown.load_state_dict(state)
    return grown
