"""A two-layer Llama with a tokenizer as a GGUF file, written with the format's own library."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from tests.helpers.tiny_models import SHAPE

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
HEADS, KV_HEADS = SHAPE["num_attention_heads"], SHAPE["num_key_value_heads"]


def write_gguf(
    path: Path,
    tokenizer_folder: Path,
    kind: Kind = Kind.Q4_1,
    *,
    drop: str = "",
    architecture: str = "llama",
    add: Callable[[gguf.GGUFWriter], object] = lambda writer: None,
    without: Sequence[str] = (),
) -> dict[str, torch.Tensor]:
    """Write the file; matrices are of type `kind`, vectors F32. Returns the dequantised weights
    that a reader must find, by their transformers names. `drop` leaves out the tensor of that GGUF
    name, `without` keys; `add` adds keys and tensors."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    torch.manual_seed(0)
    sizes = SHAPE | {"vocab_size": len(tokenizer), "intermediate_size": 64}
    config = LlamaConfig(**sizes, num_hidden_layers=2, tie_word_embeddings=True, rope_theta=10000.0)
    model = LlamaForCausalLM(config)
    writer = gguf.GGUFWriter(path, architecture)
    _write_settings(writer, model.config)
    _write_tokenizer(writer, tokenizer)
    expected = {}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue  # tied
        values = torch.empty_like(weight).normal_(0, 0.3) if weight.ndim > 1 else weight
        own = _gguf_name(name)
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(own.split(".")[-2])
        stored = _rotary_order(values, heads) if heads else values
        raw = kind if weight.ndim > 1 else Kind.F32
        packed = gguf.quantize(np.ascontiguousarray(stored.numpy()), raw)
        read = gguf.dequantize(gguf.quantize(values.numpy(), raw), raw)
        expected[name] = torch.from_numpy(read.copy())
        if own != drop:
            writer.add_tensor(own, packed, raw_dtype=raw)
    for key in without:
        del writer.kv_data[0][key]
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def _write_settings(writer, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.hidden_size // HEADS)
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer, tokenizer):
    special = set(tokenizer.all_special_ids)
    ids = range(len(tokenizer))
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokenizer.convert_ids_to_tokens(ids))
    writer.add_token_types([3 if token in special else 1 for token in ids])  # 3: control
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(tokenizer.eos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tokenizer.chat_template)


def _gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.weight"


def _rotary_order(weight, heads):
    """Rows of a query or key matrix as llama.cpp stores them: the two halves of a head's rotary
    pairs interleaved."""
    half = weight.shape[0] // heads // 2
    return weight.view(heads, 2, half, -1).transpose(1, 2).reshape(weight.shape)
