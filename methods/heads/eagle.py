"""The networks of EAGLE's heads, with the tensor names and layout of the official checkpoints.

EAGLE, EAGLE-2 and HASS: one decoder layer that predicts the target's next final state, the same
network in all three, trained and used differently (Li et al. 2024, "EAGLE", section 3; Zhang et al.
2024, "HASS"). EAGLE-3: layers of the target fused, one decoder layer or more, its own LM head over
its own vocabulary (Li et al. 2025, section 3; the variants of `Form` as vLLM's `llama_eagle3.py`
computes them)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from methods.engine.attention import attend
from methods.engine.decoder import Norm, Product, rms_norm
from methods.heads.eagle3_config import Form

FEATURES = (-1,)
"""HF hidden_states index of the feature of EAGLE and HASS: the last one, which is behind the final
norm."""
TARGET_HEAD = "lm_head_of_target"
"""Key of a config.json: true where the LM head is the target's rows of the draft vocabulary, and
not in the file."""
NEEDED = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")
KNOWN = (
    *NEEDED,
    "num_key_value_heads",
    "hidden_act",
    "max_position_embeddings",
    "rms_norm_eps",
    "head_dim",
    "mlp_bias",
    "initializer_range",
)


LayerInput = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Embeddings and hidden states -> what the first layer's attention reads, and what its output is
added to."""


class KeyValues(Protocol):
    """What a layer needs of a cache: store keys and values [B, G, N, d], give back all that may be
    attended to."""

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int
    ) -> tuple[Tensor, Tensor]: ...


def head_config(raw: Mapping[str, Any], **changes: Any) -> LlamaConfig:
    """A head's `config.json` -> the configuration of a layer; one layer, unless `changes` say
    otherwise.

    RoPE: base `rope_theta` (or the one inside `rope_parameters`), else 10000; scaling as in
    `rope_scaling`. Keys that do not concern the layer, the model type among them, are left alone.
    Raises KeyError for a missing size."""
    for key in NEEDED:
        raw[key]
    scaling = dict(raw.get("rope_parameters") or {}) | dict(raw.get("rope_scaling") or {})
    rope = {key: value for key, value in scaling.items() if key != "type"}
    rope["rope_type"] = scaling.get("rope_type") or scaling.get("type") or "default"
    rope["rope_theta"] = raw.get("rope_theta") or scaling.get("rope_theta") or 10000.0
    settings = {key: raw[key] for key in KNOWN if raw.get(key) is not None}
    return LlamaConfig(**settings | {"num_hidden_layers": 1, "rope_parameters": rope} | changes)


class RMSNorm(LlamaRMSNorm):
    """RMSNorm of transformers, in few operations where nothing is trained."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        if torch.is_grad_enabled() or hidden_states.dtype != self.weight.dtype:
            out: Tensor = super().forward(hidden_states)
            return out
        return rms_norm(hidden_states, self.weight, self.variance_epsilon)


class HeadAttention(nn.Module):
    """Grouped-query attention whose inputs are `width` wide and whose outputs are as wide as the
    hidden state."""

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

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor | None, cache: KeyValues | None
    ) -> Tensor:
        """x [B, N, width], mask [B or 1, 1, N, L] additive or boolean, None = causal -> [B, N,
        h]."""
        rows, nodes, _ = x.shape
        query = self.q_proj(x).view(rows, nodes, self.heads, self.dim).transpose(1, 2)
        key = self.k_proj(x).view(rows, nodes, self.groups, self.dim).transpose(1, 2)
        value = self.v_proj(x).view(rows, nodes, self.groups, self.dim).transpose(1, 2)
        query, key = apply_rotary_pos_emb(query, key, *rotary)
        if cache is not None:
            key, value = cache.update(key, value, self.index)
        states, _ = attend(self, query, key, value, mask, scaling=self.dim**-0.5)
        out: Tensor = self.o_proj(states.reshape(rows, nodes, -1))
        return out


class HeadModule(nn.Module, ABC):
    """What the EAGLE heads share: they turn (embedding of token t+1, hidden state at t) into the
    hidden state at t+1.

    `fuse` makes the hidden state out of the target's features; afterwards the head feeds on its own
    output. A subclass has `config`, and `embed_tokens` if the checkpoint has its own embedding.

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

    def forward(
        self,
        embeddings: Tensor,
        hidden: Tensor,
        *,
        mask: Tensor | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        cache: KeyValues | None = None,
    ) -> Tensor:
        """embeddings [B, N, H] of tokens t+1, hidden [B, N, h] at t (fused features, or this
        function's output one step before) -> hidden [B, N, h] at t+1: what is fed back.

        mask [B or 1, 1, N, L], additive or boolean (None: causal over the N inputs); rotary as
        `rotary` makes it (None: positions 0 … N-1); cache receives the keys and values."""
        if rotary is None:
            rotary = self.rotary(torch.arange(embeddings.shape[1], device=embeddings.device)[None])
        x, residual = self.layer_input(embeddings, hidden)
        for index, layer in enumerate(self.stack):
            if index:
                x = layer.input_layernorm(residual)
            residual = residual + layer.self_attn(x, rotary, mask, cache)
            residual = residual + layer.mlp(layer.post_attention_layernorm(residual))
        return self.output(residual)

    @property
    @abstractmethod
    def stack(self) -> list[Any]:
        """The decoder layers in order: `self_attn`, `mlp` and the norm before the latter,
        `post_attention_layernorm`; those behind the first have an `input_layernorm` too."""

    def output(self, hidden: Tensor) -> Tensor:
        """The last layer's output [..., h] -> what is fed back."""
        return hidden

    @abstractmethod
    def layer_input(self, embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """What the layer's attention reads [B, N, width] and what its output is added to [B, N,
        h]."""

    def lean_input(self) -> LayerInput:
        """`layer_input` of [T, H] and [T, h] in fewer operations, on the weights as they are
        now."""
        return self.layer_input


class _PlainLayer(nn.Module):
    """A decoder layer without a norm in front of its attention."""

    def __init__(self, config: LlamaConfig, bias: bool):
        super().__init__()
        self.self_attn = HeadAttention(config, config.hidden_size, bias)
        self.mlp = LlamaMLP(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class EagleHead(HeadModule):
    """config: of the layer (`head_config`); its hidden size is the target's. Logits are the
    target's LM head applied to the output, without a norm, so the head has none of its own. bias:
    of `fc`, as the official configs say by being silent. own_embedding: the checkpoint carries
    `embed_tokens` (otherwise the target's embedding is used)."""

    d2t = t2d = None

    def __init__(
        self,
        config: LlamaConfig,
        *,
        bias: bool = True,
        own_embedding: bool = True,
        attention_bias: bool = False,
    ):
        super().__init__(config)
        size = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, size) if own_embedding else None
        self.fc = Product(2 * size, size, bias=bias)
        self.layers = nn.ModuleList([_PlainLayer(config, attention_bias)])

    def fuse(self, features: Tensor) -> Tensor:
        """The target's final-norm state is the feature as it stands."""
        return features

    @property
    def stack(self) -> list[Any]:
        return [self.layers[0]]

    def layer_input(self, embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        fused = self.fc(torch.cat([embeddings, hidden], -1))
        return fused, fused


class _Layer(nn.Module):
    """A decoder layer. The first, `index` 0, reads the embeddings too, and normalises the hidden
    state for itself."""

    def __init__(self, config: LlamaConfig, bias: bool, index: int):
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = HeadAttention(config, size if index else 2 * size, bias, index)
        self.mlp = LlamaMLP(config)
        if index == 0:
            self.hidden_norm = RMSNorm(size, eps)
        self.input_layernorm = RMSNorm(size, eps)
        self.post_attention_layernorm = RMSNorm(size, eps)


class Eagle3Head(HeadModule):
    """config: of a layer (`head_config`). form: what the head reads and where it normalises.
    target_size: H, the target's hidden size. draft_vocab: Vd tokens of the LM head. own_embedding:
    the checkpoint carries `embed_tokens` (otherwise the target's embedding is used).

    d2t [Vd] int64: target id = draft id + d2t[draft id]; t2d [V] bool: the target ids that have a
    draft id. Neither exists where Vd == V."""

    def __init__(
        self,
        config: LlamaConfig,
        form: Form,
        *,
        target_size: int | None = None,
        draft_vocab: int | None = None,
        own_embedding: bool = False,
        attention_bias: bool = False,
    ):
        super().__init__(config)
        self.form, self.window = form, form.window
        size, vocab, eps = config.hidden_size, draft_vocab or config.vocab_size, config.rms_norm_eps
        read, count = target_size or size, len(form.features)
        self.fc = Product(count * read, size, bias=False) if form.fuses else None
        if form.norm_before_fc:
            self.input_norm = RMSNorm(count * read, eps)
        if form.fc_norm:
            self.fc_norm = nn.ModuleList(RMSNorm(read, eps) for _ in form.features)
        self.midlayer = _Layer(config, attention_bias, 0)
        self.layers = nn.ModuleDict(
            {str(index): _Layer(config, attention_bias, index) for index in range(1, form.layers)}
        )
        self.norm = RMSNorm(size, eps)
        self.lm_head = Product(size, vocab, bias=False)
        self.embed_tokens = nn.Embedding(config.vocab_size, size) if own_embedding else None
        if vocab != config.vocab_size:
            self.register_buffer("d2t", torch.zeros(vocab, dtype=torch.int64))
            self.register_buffer("t2d", torch.zeros(config.vocab_size, dtype=torch.bool))
        else:
            self.d2t = self.t2d = None

    def fuse(self, features: Tensor) -> Tensor:
        if self.fc is None:
            return features
        if self.form.norm_before_fc:
            features = self.input_norm(features)
        if self.form.fc_norm:
            parts = features.chunk(len(self.fc_norm), -1)
            features = torch.cat(
                [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], -1
            )
        out: Tensor = self.fc(features)
        return out

    @property
    def stack(self) -> list[Any]:
        return [self.midlayer, *self.layers.values()]

    def layer_input(self, embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        layer = self.midlayer
        normed = layer.hidden_norm(hidden)
        joined = torch.cat([layer.input_layernorm(embeddings), normed], -1)
        return joined, normed if self.form.norm_before_residual else hidden

    def lean_input(self) -> LayerInput:
        layer, eps = self.midlayer, self.config.rms_norm_eps
        weights = layer.input_layernorm.weight, layer.hidden_norm.weight
        norm, normed_residual = Norm(torch.stack(weights), eps), self.form.norm_before_residual

        def both(embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
            normed = norm(torch.stack([embeddings, hidden], 1))
            return normed.flatten(1), normed[:, 1] if normed_residual else hidden

        return both

    def output(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.norm(hidden) if self.form.norm_output else hidden
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """The head's output [..., h] -> logits [..., Vd] over the draft vocabulary."""
        normed = hidden if self.form.norm_output else self.norm.forward(hidden)
        return self.lm_head.forward(normed)
