"""The decoder layer that trained heads are made of, and their configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb

from methods.engine.attention import attend

KNOWN = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "hidden_act",
         "max_position_embeddings", "rms_norm_eps", "head_dim", "mlp_bias", "initializer_range")


class KeyValues(Protocol):
    """What a layer needs of a cache: store keys and values [B, G, N, d], give back all that may be attended to."""

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]: ...


def head_config(raw: Mapping[str, Any], **changes: Any) -> LlamaConfig:
    """A head's `config.json` -> the configuration of a layer; one layer, unless `changes` say otherwise.

    RoPE: base `rope_theta` (or the one inside `rope_parameters`), else 10000; scaling as in `rope_scaling`. Keys that
    do not concern the layer, the model type among them, are left alone. Raises KeyError for a missing size."""
    for key in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads"):
        raw[key]
    scaling = dict(raw.get("rope_parameters") or {}) | dict(raw.get("rope_scaling") or {})
    rope = {key: value for key, value in scaling.items() if key != "type"}
    rope["rope_type"] = scaling.get("rope_type") or scaling.get("type") or "default"
    rope["rope_theta"] = raw.get("rope_theta") or scaling.get("rope_theta") or 10000.0
    settings = {key: raw[key] for key in KNOWN if raw.get(key) is not None}
    return LlamaConfig(**settings | {"num_hidden_layers": 1, "rope_parameters": rope} | changes)


class RMSNorm(LlamaRMSNorm):
    """RMSNorm of transformers, in one operation where nothing is trained."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        if torch.is_grad_enabled() or hidden_states.dtype != self.weight.dtype:
            out: Tensor = super().forward(hidden_states)
            return out
        return F.rms_norm(hidden_states, self.weight.shape, self.weight, self.variance_epsilon)


class HeadAttention(nn.Module):
    """Grouped-query attention whose inputs are `width` wide and whose outputs are as wide as the hidden state."""

    def __init__(self, config: LlamaConfig, width: int, bias: bool = False, index: int = 0):
        """`index`: its layer's place in the cache."""
        super().__init__()
        self.index = index
        self.heads: int = config.num_attention_heads
        self.groups: int = config.num_key_value_heads or self.heads
        self.dim: int = config.head_dim or config.hidden_size // self.heads
        self.q_proj = nn.Linear(width, self.heads * self.dim, bias=bias)
        self.k_proj = nn.Linear(width, self.groups * self.dim, bias=bias)
        self.v_proj = nn.Linear(width, self.groups * self.dim, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor | None, cache: KeyValues | None) -> Tensor:
        """x [B, N, width], mask [B or 1, 1, N, L] additive or boolean, None = causal -> [B, N, h]."""
        rows, nodes, _ = x.shape
        query = self.q_proj(x).view(rows, nodes, self.heads, self.dim).transpose(1, 2)
        key = self.k_proj(x).view(rows, nodes, self.groups, self.dim).transpose(1, 2)
        value = self.v_proj(x).view(rows, nodes, self.groups, self.dim).transpose(1, 2)
        query, key = apply_rotary_pos_emb(query, key, *rotary)
        if cache is not None:
            key, value = cache.update(key, value, self.index)
        states, _ = attend(self, query, key, value, mask, scaling=self.dim ** -0.5)
        out: Tensor = self.o_proj(states.reshape(rows, nodes, -1))
        return out


class HeadModule(nn.Module, ABC):
    """What the EAGLE heads share: they turn (embedding of token t+1, hidden state at t) into the hidden state at t+1.

    `fuse` makes the hidden state out of the target's features; afterwards the head feeds on its own output. A subclass
    has `config`, and `embed_tokens` if the checkpoint has its own embedding.

    window  positions that a token looks back, itself included; None: all."""

    config: LlamaConfig
    embed_tokens: nn.Embedding | None
    window: int | None = None

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config = config
        self.rotary_emb = LlamaRotaryEmbedding(config)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [B, N, d] for positions [B, N] int64."""
        cos, sin = self.rotary_emb(next(self.parameters()), positions)
        return cos, sin

    @abstractmethod
    def fuse(self, features: Tensor) -> Tensor:
        """Target features [B, N, F*H] -> hidden states [B, N, h]."""

    def forward(self, embeddings: Tensor, hidden: Tensor, *, mask: Tensor | None = None,
                rotary: tuple[Tensor, Tensor] | None = None, cache: KeyValues | None = None) -> Tensor:
        """embeddings [B, N, H] of tokens t+1, hidden [B, N, h] at t (fused features, or this function's output one step
        before) -> hidden [B, N, h] at t+1: what is fed back.

        mask [B or 1, 1, N, L], additive or boolean (None: causal over the N inputs); rotary as `rotary` makes it
        (None: positions 0 … N-1); cache receives the keys and values."""
        if rotary is None:
            rotary = self.rotary(torch.arange(embeddings.shape[1], device=embeddings.device)[None])
        x, residual = self.layer_input(embeddings, hidden)
        for layer in (self.layer, *self.deeper):
            if layer is not self.layer:
                x = layer.input_layernorm(residual)
            residual = residual + layer.self_attn(x, rotary, mask, cache)
            residual = residual + layer.mlp(layer.post_attention_layernorm(residual))
        return self.output(residual)

    @property
    @abstractmethod
    def layer(self) -> Any:
        """The first decoder layer: `self_attn`, `mlp` and the norm before the latter, `post_attention_layernorm`."""

    @property
    def deeper(self) -> list[Any]:
        """The decoder layers behind the first, in order; they have an `input_layernorm` too."""
        return []

    def output(self, hidden: Tensor) -> Tensor:
        """The last layer's output [..., h] -> what is fed back."""
        return hidden

    @abstractmethod
    def layer_input(self, embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """What the layer's attention reads [B, N, width] and what its output is added to [B, N, h]."""

