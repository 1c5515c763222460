"""Initial weights that contain induction heads, so that a small transformer can look things up from
its first step.

Answering "what does Mia have" from "... Mia has 12 ..." takes two layers: one records at every
position which tokens precede it, a later one compares these records. From random weights the
circuit forms late and suddenly: the embedded target had not found it after five million tokens.
With these weights it works after forty steps of exercises (98% of the tokens that can be looked up,
with the loss on those tokens alone; in the mixture it fades and returns). The idea is mimetic
initialisation (Trockman & Kolter 2023), the circuit is the induction head (Olsson et al. 2022). All
weights stay trainable and the architecture is unchanged.

A random orthonormal basis divides the residual stream: one direction `constant` that all embeddings
share, one half for the tokens, three parts for records. Layer 0 has a head for each offset 1, 2, 3.
Its queries and keys see the constant only, rotated by the rotary angle of the offset, so it attends
exactly that far back and writes the token found there into its part. Heads of later layers compare
one record, or the token itself (query), with another (key), in those of their dimensions that the
rotary embedding hardly rotates over a prompt. All other outputs start at zero.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention

OFFSETS = 3
COMPARED: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...] = (
    ((0, (1, 2)), (1, (0, 2))),
    ((2, (1, 3)), (1, (0, 2))),
    ((0, (2, 3)), (3, (1, 2))),
)
"""For each later layer in turn, for each key-value head: what its keys read and what its query
heads read, as offsets before the position (0: the token itself)."""

NORM = 0.3
"""Norm of the constant, of the token and of each record in the residual stream."""
SHARPNESS = 30.0
"""Attention logit of an offset head at its offset."""
MATCH = 2.0
"""Scale of the comparing projections."""
SLOW = 0.02
"""Radians per token up to which a rotary dimension counts as not rotating."""


@torch.no_grad()
def init_induction(model: LlamaForCausalLM) -> None:
    """Set embeddings, attention and output projections of a new model in place, from the global
    generator."""
    config: Any = model.config
    layers = model.model.layers
    size, heads, pairs = config.hidden_size, config.num_attention_heads, config.head_dim // 2
    offsets, half = min(OFFSETS, heads), size // 2
    part = (size - half - 1) // offsets
    basis = torch.linalg.qr(torch.randn(size, size))[0]
    constant, tokens = basis[:, 0], basis[:, 1 : half + 1]
    records = [basis[:, half + 1 + part * i : half + 1 + part * (i + 1)] for i in range(offsets)]
    width = min(part, config.head_dim)
    read = tokens[:, :width].T  # [width, size] the part of a token that a record keeps
    theta = config.rope_parameters["rope_theta"]
    rotation = theta ** (-torch.arange(pairs) / pairs)

    embedding = (
        torch.randn(config.vocab_size, half) @ tokens.T * NORM / math.sqrt(half) + NORM * constant
    )
    model.model.embed_tokens.weight.copy_(embedding)
    for layer in layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    _record(layers[0].self_attn, config, constant, read, records, rotation)
    slow = torch.tensor([i for i in range(2 * pairs) if rotation[i % pairs] <= SLOW])[:width]
    reads = [read, *(record.T[:width] for record in records)]
    for index, layer in enumerate(layers[1:]):
        _compare(
            layer.self_attn,
            config,
            COMPARED[index % len(COMPARED)],
            [r[: len(slow)] for r in reads],
            slow,
        )


def _record(
    attention: LlamaAttention,
    config: Any,
    constant: Tensor,
    read: Tensor,
    records: list[Tensor],
    rotation: Tensor,
) -> None:
    """Head h of layer 0 attends h + 1 tokens back and writes what it reads there into
    `records[h]`."""
    dim, pairs, width = config.head_dim, config.head_dim // 2, len(read)
    # pairs that rotate fast enough to separate one offset from the next
    fast = max(1, dim * 10 // 64)
    unit = 16 / math.sqrt(2)  # of the constant after normalisation, times sqrt(size) / 16
    unit *= math.sqrt(config.hidden_size) / 16
    scale = math.sqrt(SHARPNESS * math.sqrt(dim)) / unit
    for head in range(config.num_key_value_heads):
        key = torch.zeros(dim)
        key[:fast] = 1 / math.sqrt(fast)
        attention.k_proj.weight[head * dim : (head + 1) * dim] += scale * key[:, None] * constant
        attention.v_proj.weight[head * dim : head * dim + width] = read
    for head, record in enumerate(records):
        query, angle = torch.zeros(dim), -(head + 1) * rotation[:fast]
        query[:fast] = angle.cos() / math.sqrt(fast)
        query[pairs : pairs + fast] = angle.sin() / math.sqrt(fast)
        attention.q_proj.weight[head * dim : (head + 1) * dim] += scale * query[:, None] * constant
        gain = NORM / (unit * math.sqrt(width / (config.hidden_size // 2)))
        attention.o_proj.weight[:, head * dim : head * dim + width] = gain * record[:, :width]


def _compare(
    attention: LlamaAttention,
    config: Any,
    pairs: tuple[tuple[int, tuple[int, ...]], ...],
    reads: list[Tensor],
    slow: Tensor,
) -> None:
    """Heads whose scores compare the token at one offset before the query with that at another
    before the key."""
    dim, groups = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    last = len(reads) - 1
    for head in range(config.num_key_value_heads):
        key, queries = pairs[head % len(pairs)]
        attention.k_proj.weight[head * dim + slow] = MATCH * reads[min(key, last)]
        for i in range(groups):
            row = (head * groups + i) * dim + slow
            attention.q_proj.weight[row] = MATCH * reads[min(queries[i % len(queries)], last)]
