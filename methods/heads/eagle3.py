"""The EAGLE-3 head: three of the target's layers fused, one decoder layer, its own LM head over its own vocabulary.

Source: Li et al. 2025, "EAGLE-3", section 3; tensor names and layout of the official checkpoints."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP

from methods.engine.block import Product
from methods.heads.layer import HeadAttention, HeadModule, RMSNorm

TARGET_HEAD = "lm_head_of_target"
"""Key of a config.json: true where the LM head is the target's rows of the draft vocabulary, and not in the file."""


def fused_layers(layers: int) -> tuple[int, int, int]:
    """The HF hidden_states indices that are fused, for a target of `layers` layers: low, middle, high."""
    return 2, layers // 2, layers - 3


class _Layer(nn.Module):
    def __init__(self, config: LlamaConfig, bias: bool):
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = HeadAttention(config, 2 * size, bias)
        self.mlp = LlamaMLP(config)
        self.hidden_norm = RMSNorm(size, eps)
        self.input_layernorm = RMSNorm(size, eps)
        self.post_attention_layernorm = RMSNorm(size, eps)


class Eagle3Head(HeadModule):
    """config: of the layer (`head_config`). target_size: H, the target's hidden size. draft_vocab: Vd tokens of the LM
    head. own_embedding: the checkpoint carries `embed_tokens` (otherwise the target's embedding is used).

    d2t [Vd] int64: target id = draft id + d2t[draft id]; t2d [V] bool: the target ids that have a draft id. Neither
    exists where Vd == V."""

    def __init__(self, config: LlamaConfig, *, target_size: int | None = None, draft_vocab: int | None = None,
                 own_embedding: bool = False, attention_bias: bool = False):
        super().__init__(config)
        size, vocab = config.hidden_size, draft_vocab or config.vocab_size
        self.fc = Product(3 * (target_size or size), size, bias=False)
        self.midlayer = _Layer(config, attention_bias)
        self.norm = RMSNorm(size, config.rms_norm_eps)
        self.lm_head = Product(size, vocab, bias=False)
        self.embed_tokens = nn.Embedding(config.vocab_size, size) if own_embedding else None
        if vocab != config.vocab_size:
            self.register_buffer("d2t", torch.zeros(vocab, dtype=torch.int64))
            self.register_buffer("t2d", torch.zeros(config.vocab_size, dtype=torch.bool))
        else:
            self.d2t = self.t2d = None

    def fuse(self, features: Tensor) -> Tensor:
        out: Tensor = self.fc(features)
        return out

    @property
    def layer(self) -> nn.Module:
        return self.midlayer

    def layer_input(self, embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        layer = self.midlayer
        return torch.cat([layer.input_layernorm(embeddings), layer.hidden_norm(hidden)], -1), hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Pre-norm hidden states [..., h] -> logits [..., Vd] over the draft vocabulary."""
        out: Tensor = self.lm_head(self.norm(hidden))
        return out
