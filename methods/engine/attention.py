"""Attention over the slot cache: where nodes stand and what each sees, grouped-query heads folded
into the query axis so that no key or value is copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function, eager_mask

from methods.engine.cache import SlotCache


@dataclass(slots=True)
class NodeLayout:
    """N nodes of each row behind its committed tokens, in a cache of which L slots are visible.

    positions  [B, N] int64.
    blocked    [B, N, L] bool: the slots that a node of a tree does not see; None: a chain, whose
               nodes see all slots up to their own.
    causal     the nodes are chains in an empty cache: node i sees slots 0 … i.
    places     [B, N] int64, the slot of each node.
    slot_ids   [L] int64, 0, 1, …
    """

    positions: Tensor
    blocked: Tensor | None
    causal: bool
    places: Tensor
    slot_ids: Tensor

    @classmethod
    def of(
        cls,
        cache: SlotCache,
        nodes: int,
        causal: bool,
        ancestors: Tensor | None = None,
        depth: Tensor | None = None,
    ) -> NodeLayout:
        """Begin a forward of `nodes` nodes, after `SlotCache.reserve`: a tree of `ancestors` [B or
        1, N, N] bool and `depth` [B or 1, N], or a chain."""
        places = cache.places(nodes)
        cache.begin(places)
        slots = cache.slot_ids[: cache.visible]
        if ancestors is None or depth is None:
            return cls(places, None, causal, places, slots)
        behind = (slots >= cache.starts[:, None])[:, None].expand(-1, nodes, -1)
        blocked = behind.scatter(
            2, places[:, None].expand(-1, nodes, -1), ~ancestors.expand(len(places), -1, -1)
        )
        return cls(cache.starts[:, None] + depth, blocked, causal, places, slots)

    @property
    def slot_positions(self) -> Tensor:
        """[B, L] int64: the position of what each slot holds."""
        return self.slot_ids.expand(len(self.places), -1).scatter(1, self.places, self.positions)

    def mask(self, dtype: torch.dtype, window: int | None = None) -> Tensor:
        """[B, 1, N, L] additive; `window`: positions that a node looks back, itself included."""
        blocked = self.slot_ids > self.places[..., None] if self.blocked is None else self.blocked
        if window is not None:
            blocked = blocked | (self.slot_positions[:, None] <= self.positions[..., None] - window)
        return additive(blocked, dtype)[:, None]


def additive(blocked: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention may look, the type's lowest number where it is `blocked`."""
    return blocked.to(dtype).mul_(torch.finfo(dtype).min)


NAME = "leeway"
_layout: ContextVar[NodeLayout | None] = ContextVar("layout", default=None)


@contextmanager
def laid_out(layout: NodeLayout) -> Iterator[None]:
    """A forward of a model of transformers whose nodes stand as `layout` says."""
    token = _layout.set(layout)
    try:
        yield
    finally:
        _layout.reset(token)


def mask(
    batch_size: int,
    *,
    mask_function: Callable[..., Any],
    dtype: torch.dtype = torch.float32,
    **others: Any,
) -> Tensor | None:
    """[B, 1, N, L] additive: what the model's own rule, `mask_function` of row, head and the
    positions of query and key, lets the nodes of the forward see. The arguments are those of
    `transformers.masking_utils.eager_mask`."""
    if (layout := _layout.get()) is None:
        return eager_mask(batch_size, mask_function=mask_function, dtype=dtype, **others)
    if mask_function is causal_mask_function:  # in fewer operations
        return layout.mask(dtype)
    queries, keys = layout.positions[:, None, :, None], layout.slot_positions[:, None, None]
    rows: Any = (
        torch.arange(len(queries), device=queries.device)[:, None, None, None]
        if len(queries) > 1
        else 0
    )
    blocked = ~mask_function(rows, 0, queries, keys)
    if layout.blocked is not None:
        blocked = blocked | layout.blocked[:, None]
    return additive(blocked, dtype)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """query [B, H, N, d], key [B, G, L, d] and value [B, G, L, v] with H = G * r, attention_mask [B
    or 1, 1, N, L] additive in the model's dtype, boolean, or None (causal) -> [B, N, H, v]. s_aux
    [H]: each head's sink, a logit without a value (gpt-oss).

    Head h reads group h // r, so the r heads of a group are stacked along the query axis: [B, G,
    r*N, d]."""
    rows, heads, nodes, dim = query.shape
    groups = key.shape[1]
    repeats = heads // groups
    folded = query.reshape(rows, groups, repeats * nodes, dim)
    if attention_mask is None and nodes > 1:
        length = key.shape[2]
        attention_mask = torch.ones(1, 1, nodes, length, dtype=torch.bool, device=key.device).tril(
            length - nodes
        )
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        attention_mask = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(
            ~attention_mask, -torch.inf
        )
    if attention_mask is not None and repeats > 1 and nodes > 1:
        attention_mask = attention_mask.repeat(1, 1, repeats, 1)
    if softcap is None and s_aux is None:
        out = F.scaled_dot_product_attention(
            folded, key, value, attn_mask=attention_mask, scale=scaling
        )
    else:
        scores = folded @ key.transpose(-1, -2) * (scaling / (softcap or 1.0))
        if softcap is not None:
            scores = torch.tanh(scores)
        if attention_mask is not None:
            scores = torch.add(attention_mask, scores, alpha=softcap or 1.0)
        elif softcap is not None:
            scores = scores * softcap
        if s_aux is not None:
            sinks = (
                s_aux.view(1, groups, repeats, 1, 1).expand(rows, -1, -1, nodes, -1).flatten(2, 3)
            )
            scores = torch.cat([scores, sinks.to(scores.dtype)], -1)
        shares = scores.softmax(-1, dtype=torch.float32).to(value.dtype)
        out = (shares if s_aux is None else shares[..., :-1]) @ value
    return out.reshape(rows, heads, nodes, value.shape[-1]).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, mask)


def configs(model: nn.Module) -> list[Any]:
    """The configurations of a model's parts, each once."""
    return list(
        {
            id(part.config): part.config for part in model.modules() if hasattr(part, "config")
        }.values()
    )
