"""The networks of EAGLE's heads, with the tensor names and layout of the official checkpoints.

EAGLE, EAGLE-2 and HASS: one decoder layer that predicts the target's next final state, the same network in all three,
trained and used differently (Li et al. 2024, "EAGLE", section 3; Zhang et al. 2024, "HASS"). EAGLE-3: layers of the
target fused, one decoder layer or more, its own LM head over its own vocabulary (Li et al. 2025, section 3; the
variants of `Form` as vLLM's `llama_eagle3.py` computes them)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP

from methods.engine.decoder import Product
from methods.heads.eagle3_config import Form
from methods.heads.layer import HeadAttention, HeadModule, RMSNorm

FEATURES = (-1,)
"""HF hidden_states index of the feature of EAGLE and HASS: the last one, which is behind the final norm."""
TARGET_HEAD = "lm_head_of_target"
"""Key of a config.json: true where the LM head is the target's rows of the draft vocabulary, and not in the file."""


class _PlainLayer(nn.Module):
    """A decoder layer without a norm in front of its attention."""

    def __init__(self, config: LlamaConfig, bias: bool):
        super().__init__()
        self.self_attn = HeadAttention(config, config.hidden_size, bias)
        self.mlp = LlamaMLP(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class EagleHead(HeadModule):
    """config: of the layer (`head_config`); its hidden size is the target's. Logits are the target's LM head applied to
    the output, without a norm, so the head has none of its own. bias: of `fc`, as the official configs say by being
    silent. own_embedding: the checkpoint carries `embed_tokens` (otherwise the target's embedding is used)."""

    d2t = t2d = None

    def __init__(self, config: LlamaConfig, *, bias: bool = True, own_embedding: bool = True,
                 attention_bias: bool = False):
        super().__init__(config)
        size = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, size) if own_embedding else None
        self.fc = Product(2 * size, size, bias=bias)
        self.layers = nn.ModuleList([_PlainLayer(config, attention_bias)])

    def fuse(self, features: Tensor) -> Tensor:
        """The target's final-norm state is the feature as it stands."""
        return features

    @property
    def layer(self) -> nn.Module:
        return self.layers[0]

    def layer_input(self, embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        fused = self.fc(torch.cat([embeddings, hidden], -1))
        return fused, fused


class _Layer(nn.Module):
    """A decoder layer. The first, `index` 0, reads the embeddings too, and normalises the hidden state for itself."""

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
    """config: of a layer (`head_config`). form: what the head reads and where it normalises. target_size: H, the
    target's hidden size. draft_vocab: Vd tokens of the LM head. own_embedding: the checkpoint carries `embed_tokens`
    (otherwise the target's embedding is used).

    d2t [Vd] int64: target id = draft id + d2t[draft id]; t2d [V] bool: the target ids that have a draft id. Neither
    exists where Vd == V."""

    def __init__(self, config: LlamaConfig, form: Form, *, target_size: int | None = None,
                 draft_vocab: int | None = None, own_embedding: bool = False, attention_bias: bool = False):
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
        self.layers = nn.ModuleDict({str(index): _Layer(config, attention_bias, index)
                                     for index in range(1, form.layers)})
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
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], -1)
        out: Tensor = self.fc(features)
        return out

    @property
    def layer(self) -> nn.Module:
        return self.midlayer

    @property
    def deeper(self) -> list[nn.Module]:
        return list(self.layers.values())

    def layer_input(self, embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        layer = self.midlayer
        normed = layer.hidden_norm(hidden)
        joined = torch.cat([layer.input_layernorm(embeddings), normed], -1)
        return joined, normed if self.form.norm_before_residual else hidden

    def output(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.norm(hidden) if self.form.norm_output else hidden
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """The head's output [..., h] -> logits [..., Vd] over the draft vocabulary."""
        out: Tensor = self.lm_head(hidden if self.form.norm_output else self.norm(hidden))
        return out
