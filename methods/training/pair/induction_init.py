"""Initial weights with which a small transformer can look things up from its first step.

To answer "what does Mia have" from "... Mia has 12 ..." two layers must find each other: one that notes at every
position which tokens stand before it, one that compares such notes. From random weights this pair forms late and
suddenly: the embedded target had not found it after five million tokens. Set by hand it is there after forty steps of
exercises (98% of what can be looked up, with loss on those tokens alone; in the mixture it wears off and comes back).
The idea is that of mimetic initialisation (Trockman & Kolter 2023), the circuit that of induction heads (Olsson et al.
2022); everything stays trainable and nothing is added to the architecture.

The residual stream is divided, in a random orthonormal basis: one direction `constant` that all embeddings share, one
half for the tokens, and three parts for notes. Layer 0 has a head for each offset 1, 2, 3: its queries and keys see
only the constant, turned by the rotary angle of the offset, so it looks exactly that far back, and writes what stands
there into its part. Heads of later layers compare one note or the token itself (query) with another (key), in those of
their dimensions that the rotary embedding hardly turns over a prompt. All other outputs start at zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

OFFSETS = 3
COMPARED = (((0, (1, 2)), (1, (0, 2))), ((2, (1, 3)), (1, (0, 2))), ((0, (2, 3)), (3, (1, 2))))
"""For each later layer, in turn, for each key-value head: what its keys read, and what its query heads read, as offsets
before the position (0: the token itself)."""

NORM = 0.3
"""Of the constant, the token and each note in the residual stream."""
SHARPNESS = 30.0
"""Attention logit of an offset head at its offset."""
MATCH = 2.0
"""Scale of the comparing projections."""
SLOW = 0.02
"""Radians per token up to which a rotary dimension counts as not turning."""


@torch.no_grad()
def teach_to_look_up(model: LlamaForCausalLM) -> None:
    """Set embeddings, attention and output projections of a freshly made model in place, from the global generator."""
    config, layers = model.config, model.model.layers
    size, heads, pairs = config.hidden_size, config.num_attention_heads, config.head_dim // 2
    offsets, half = min(OFFSETS, heads), size // 2
    part = (size - half - 1) // offsets
    basis = torch.linalg.qr(torch.randn(size, size))[0]
    constant, tokens = basis[:, 0], basis[:, 1:half + 1]
    notes = [basis[:, half + 1 + part * i:half + 1 + part * (i + 1)] for i in range(offsets)]
    width = min(part, config.head_dim)
    seen = tokens[:, :width].T  # [width, size] what a note keeps of a token
    theta = config.rope_parameters["rope_theta"]
    turn = theta ** (-torch.arange(pairs) / pairs)

    embedding = torch.randn(config.vocab_size, half) @ tokens.T * NORM / math.sqrt(half) + NORM * constant
    model.model.embed_tokens.weight.copy_(embedding)
    for layer in layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    _note(layers[0].self_attn, config, constant, seen, notes, turn)
    slow = torch.tensor([i for i in range(2 * pairs) if turn[i % pairs] <= SLOW])[:width]
    reads = [seen, *(note.T[:width] for note in notes)]
    for index, layer in enumerate(layers[1:]):
        _compare(layer.self_attn, config, COMPARED[index % len(COMPARED)], [r[:len(slow)] for r in reads], slow)


def _note(attention, config, constant: Tensor, seen: Tensor, notes: list[Tensor], turn: Tensor) -> None:
    """Head h of layer 0 looks h + 1 tokens back and writes what it sees into `notes[h]`."""
    dim, pairs, width = config.head_dim, config.head_dim // 2, len(seen)
    fast = max(1, dim * 10 // 64)  # pairs that turn quickly enough to tell one offset from the next
    unit = 16 / math.sqrt(2)       # of the constant after normalisation, times sqrt(size) / 16
    unit *= math.sqrt(config.hidden_size) / 16
    scale = math.sqrt(SHARPNESS * math.sqrt(dim)) / unit
    for head in range(config.num_key_value_heads):
        key = torch.zeros(dim)
        key[:fast] = 1 / math.sqrt(fast)
        attention.k_proj.weight[head * dim:(head + 1) * dim] += scale * key[:, None] * constant
        attention.v_proj.weight[head * dim:head * dim + width] = seen
    for head, note in enumerate(notes):
        query, angle = torch.zeros(dim), -(head + 1) * turn[:fast]
        query[:fast], query[pairs:pairs + fast] = angle.cos() / math.sqrt(fast), angle.sin() / math.sqrt(fast)
        attention.q_proj.weight[head * dim:(head + 1) * dim] += scale * query[:, None] * constant
        gain = NORM / (unit * math.sqrt(width / (config.hidden_size // 2)))
        attention.o_proj.weight[:, head * dim:head * dim + width] = gain * note[:, :width]


def _compare(attention, config, pairs, reads: list[Tensor], slow: Tensor) -> None:
    """Heads whose scores compare what stands at one offset before the query with another before the key."""
    dim, groups = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    last = len(reads) - 1
    for head in range(config.num_key_value_heads):
        key, queries = pairs[head % len(pairs)]
        attention.k_proj.weight[head * dim + slow] = MATCH * reads[min(key, last)]
        for i in range(groups):
            row = (head * groups + i) * dim + slow
            attention.q_proj.weight[row] = MATCH * reads[min(queries[i % len(queries)], last)]
