"""Attention over the slot cache: grouped-query heads folded into the query axis, so that no key or value is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

NAME = "leeway"
BY_TABLE = "attention_by_table"
"""Attribute of a model whose classes of attention were chosen when it was made: they cannot be switched."""


def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
           scaling: float, dropout: float = 0.0, softcap: float | None = None, **_: Any) -> tuple[Tensor, None]:
    """query [B, H, N, d], key/value [B, G, L, d] with H = G * r, attention_mask [B or 1, 1, N, L] additive in the
    model's dtype, boolean, or None (causal) -> [B, N, H, d].

    Head h reads group h // r, so the r heads of a group are stacked along the query axis: [B, G, r*N, d]."""
    rows, heads, nodes, dim = query.shape
    groups = key.shape[1]
    repeats = heads // groups
    folded = query.reshape(rows, groups, repeats * nodes, dim)
    if attention_mask is None and nodes > 1:
        length = key.shape[2]
        attention_mask = torch.ones(1, 1, nodes, length, dtype=torch.bool, device=key.device).tril(length - nodes)
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        attention_mask = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(~attention_mask, -torch.inf)
    if attention_mask is not None and repeats > 1 and nodes > 1:
        attention_mask = attention_mask.repeat(1, 1, repeats, 1)
    if softcap is None:
        out = F.scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
    else:
        scores = torch.tanh(folded @ key.transpose(-1, -2) * (scaling / softcap)) * softcap
        if attention_mask is not None:
            scores = scores + attention_mask
        out = scores.softmax(-1, dtype=torch.float32).to(value.dtype) @ value
    return out.reshape(rows, heads, nodes, dim).transpose(1, 2), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


def configs(model: nn.Module) -> list[Any]:
    """The configurations of a model's parts, each once."""
    return list({id(part.config): part.config for part in model.modules() if hasattr(part, "config")}.values())


def installed(make: Callable[[str], Any]) -> Any:
    """The model that `make` makes for the name of an implementation of attention: this one. An architecture that takes
    its attention's class from a table keeps transformers' plain one, under this engine's masks."""
    try:
        return make(NAME)
    except KeyError as error:
        if error.args != (NAME,):
            raise
    model = make("eager")
    for config in configs(model):
        config._attn_implementation = NAME
    setattr(model, BY_TABLE, True)
    return model
