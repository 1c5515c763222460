"""The feature-level head of EAGLE, EAGLE-2 and HASS: one decoder layer that predicts the target's next final state.

The same network in all three, trained and used differently. Source: Li et al. 2024, "EAGLE", section 3; "EAGLE-2";
Zhang et al. 2024, "HASS"; tensor names and layout of the official checkpoints."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP

from methods.engine.decoder import Product
from methods.heads.layer import HeadAttention, HeadModule, RMSNorm

FEATURES = (-1,)
"""HF hidden_states index of the feature: the last one, which is behind the final norm."""


class _Layer(nn.Module):
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
        self.layers = nn.ModuleList([_Layer(config, attention_bias)])

    def fuse(self, features: Tensor) -> Tensor:
        """The target's final-norm state is the feature as it stands."""
        return features

    @property
    def layer(self) -> nn.Module:
        return self.layers[0]

    def layer_input(self, embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        fused = self.fc(torch.cat([embeddings, hidden], -1))
        return fused, fused
