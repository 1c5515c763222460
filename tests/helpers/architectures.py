"""Small random models of transformers' causal architectures; as a command, the table of what the engine does with them.

    python -m tests.helpers.architectures            # a Markdown table, for docs/options.md
    python -m tests.helpers.architectures llama mpt  # these alone"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from methods.engine import attention
from methods.engine.language_model import LanguageModel
from tests.helpers.tiny_models import NoTokenizer

SIZES = {
    "vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 512, "head_dim": 16, "sliding_window": 8, "attention_chunk_size": 8, "kv_lora_rank": 16,
    "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "vocab_size_per_layer_input": 256, "hidden_size_per_layer_input": 8,
    "num_kv_shared_layers": 0, "ffn_dim": 48, "n_inner": 48, "word_embed_proj_dim": 32, "num_kv_heads": 2,
    "expert_ffn_hidden_size": 48, "global_head_dim": 32, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8,
    "mamba_num_heads": 4, "mamba_head_dim": 16, "lru_width": 32, "d_ff": 48,
    "d_model": 32, "n_embd": 32, "n_head": 4, "n_layer": 4, "n_heads": 4, "n_layers": 4, "n_positions": 512,
    "rotary_dim": 8, "attention_window_size": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
"""Of every configuration that has the key."""
PARTS = (("intermediate_size", 48), ("experts_per_tok", 2), ("moe_topk", 2), ("num_experts", 4),
         ("num_local_experts", 4), ("routed_experts", 4))
"""Of every key that ends with this."""
OWN: dict[str, dict[str, Any]] = {
    "phi3": {"sliding_window": None},
    "qwen2": {"sliding_window": 4096}, "qwen3": {"sliding_window": 4096},
    "gemma3n_text": {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
                     "laurel_rank": 4, "activation_sparsity_pattern": [0.0] * 4},
    "falcon": {"new_decoder_architecture": True, "alibi": False}, "mpt": {"max_seq_len": 512},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "window_size": 8},
    "deepseek_v2": {"head_dim": 8}, "deepseek_v3": {"head_dim": 8},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2}}


def config_of(kind: str, **changes: Any) -> Any:
    """A small configuration of an architecture; `changes` win."""
    shape = AutoConfig.for_model(kind).get_text_config(decoder=True)
    keys = shape.to_dict()
    given = {key: value for key, value in SIZES.items() if key in keys}
    given |= {key: size for key in keys for part, size in PARTS if key.endswith(part)}
    return AutoConfig.for_model(kind, **(given | {"eos_token_id": 1, "bos_token_id": 2, "pad_token_id": 0}
                                         | OWN.get(kind, {}) | changes))


def random_model(config: Any, seed: int = 0) -> LanguageModel:
    """A float32 model whose choices are clear-cut. Raises what transformers raises."""
    torch.manual_seed(seed)
    with torch.device("meta"):
        size = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    if size > 20_000_000:
        raise ValueError(f"{size} parameters: too large")
    model = attention.installed(lambda implementation: AutoModelForCausalLM.from_config(
        config, attn_implementation=implementation, dtype=torch.float32)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "conv" not in name:
                weight.normal_(0, 0.35)
            elif "sinks" in name:
                weight.normal_(2, 1)
    return LanguageModel(config.model_type, model, NoTokenizer(), f"{config.model_type} {seed}")
