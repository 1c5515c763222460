"""A lean decoder: dense models of the Llama family on the weights that transformers loaded, without its modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from methods.engine.block import Block, Norm, Place, Product, Rotary, choose_kernels, fold
from methods.engine.cache import SlotCache
from methods.engine.products import Products


class Decoder:
    """Embedding, layers, final norm and LM head of one model.

    The model's modules share all weights; they must not be moved or cast afterwards."""

    def __init__(self, model: Any, products: Products | None = None):
        body, self.config = model.base_model, model.config
        self.embedding: nn.Embedding = body.embed_tokens
        self.norms = [Norm(layer.input_layernorm.weight, self.config.rms_norm_eps) for layer in body.layers]
        self.norms.append(Norm(body.norm.weight, self.config.rms_norm_eps))
        self.blocks = [Block(layer.self_attn, layer.mlp, layer.post_attention_layernorm, self.config, index,
                             products)
                       for index, layer in enumerate(body.layers)]
        self.rotary = Rotary(body.rotary_emb, model.dtype, self.config.max_position_embeddings)
        self.head: nn.Linear = model.get_output_embeddings()
        if type(self.head) is nn.Linear:
            self.head.__class__ = Product  # its hooks, by which a profile knows the head's share, stay
        choose_kernels(self.head, products)
        self.repeats = self.blocks[0].heads // self.blocks[0].groups

    @torch.no_grad()
    def __call__(self, tokens: Tensor, cache: SlotCache, positions: Tensor, mask: Tensor | None, *,
                 keep: Tensor | int = 0, hidden: bool = False,
                 features: tuple[int, ...] = ()) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """tokens [B, N], positions [B or 1, N], mask [B or 1, 1, N, L] additive or None (causal from slot 0, or N = 1)
        -> logits [B, n, V] float32, final-norm states [B, N, H] and features [B, N, F*H], or None."""
        rows, nodes = tokens.shape
        cos, sin = self.rotary.at(positions, cache.slots)
        place = Place(cache, cos, sin, fold(mask, self.repeats))
        last = len(self.blocks)
        states: dict[int, Tensor] = {}
        wanted = {index % (last + 1) for index in features}
        x = F.embedding(tokens.flatten(), self.embedding.weight)
        for index in range(last):
            if index in wanted:
                states[index] = x.to(tokens.device)
            x = self.layer(index, x, place)
        x = x.view(rows, nodes, -1)
        if hidden or last in wanted:
            states[last] = x = self.norms[-1](x)
            x = _kept(x, keep)
        else:
            x = self.norms[-1](_kept(x, keep))
        logits = self.head(x).float()
        picked = [states[index % (last + 1)].view(rows, nodes, -1) for index in features]
        joined = None if not picked else picked[0] if len(picked) == 1 else torch.cat(picked, -1)
        return logits, states[last] if hidden else None, joined

    def layer(self, index: int, x: Tensor, place: Place) -> Tensor:
        """One layer: residual stream [T, H] -> [T, H]."""
        return self.blocks[index](self.norms[index](x), x, place)


def _kept(x: Tensor, keep: Tensor | int) -> Tensor:
    """The positions of [B, N, H] that transformers' `logits_to_keep` names: 0 all, n the last n, or an index [n]."""
    return x[:, keep] if isinstance(keep, Tensor) else x[:, -keep:] if keep else x
