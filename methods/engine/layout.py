"""Where the nodes of a forward stand and what each may attend to, computed on the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.engine.cache import SlotCache


@dataclass(slots=True)
class Layout:
    """N nodes of each row behind its committed tokens, in a cache of which L slots are visible.

    positions  [B, N] int64.
    blocked    [B, N, L] bool: the slots that a node of a tree does not see; None: a chain, whose nodes see all slots up
               to their own.
    causal     the nodes are chains in an empty cache: node i sees slots 0 … i.
    places     [B, N] int64, the slot of each node.
    slot_ids   [L] int64, 0, 1, …
    long       [B] bool, the rows whose rotary frequencies are those of long texts; None: no row's depend on its length.
    """

    positions: Tensor
    blocked: Tensor | None
    causal: bool
    places: Tensor
    slot_ids: Tensor
    long: Tensor | None

    @classmethod
    def of(cls, cache: SlotCache, nodes: int, causal: bool, ancestors: Tensor | None = None,
           depth: Tensor | None = None) -> Layout:
        """Begin a forward of `nodes` nodes, after `SlotCache.reserve`: a tree of `ancestors` [B or 1, N, N] bool and
        `depth` [B or 1, N], or a chain."""
        places = cache.places(nodes)
        cache.begin(places)
        slots = cache.slot_ids[:cache.visible]
        if ancestors is None or depth is None:
            return cls(places, None, causal, places, slots, cache.long)
        behind = (slots >= cache.starts[:, None])[:, None].expand(-1, nodes, -1)
        blocked = behind.scatter(2, places[:, None].expand(-1, nodes, -1), ~ancestors.expand(len(places), -1, -1))
        return cls(cache.starts[:, None] + depth, blocked, causal, places, slots, cache.long)

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
