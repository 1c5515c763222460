"""Feed a tree to an EAGLE head level by level."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from methods.engine.cache import SlotCache
from methods.engine.layout import additive
from methods.heads.head import Head


def pick(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x [B, M, W] by index [B or 1, N] -> [B, N, W]."""
    if len(index) == 1:
        return x.index_select(1, index[0])
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


@cache
def _level_of(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """[sum of sizes] the level of each node; kept, for recordings read it where it is."""
    counts = torch.tensor(sizes, dtype=torch.long, device=device)
    return torch.arange(len(sizes), device=device).repeat_interleave(counts)


class Levels:
    """Feeds levels of `sizes` nodes to the head, behind each row's committed tokens; nothing is committed.

    A node attends to the committed tokens, its ancestors and itself; all nodes of a level share one position. Make it
    after `SlotCache.reserve` for the nodes of all levels."""

    def __init__(self, head: Head, cache: SlotCache, sizes: Sequence[int]):
        self.head, self.cache = head, cache
        starts = cache.starts[:, None]
        positions = starts + _level_of(tuple(sizes), cache.device)
        self.places = zip(cache.places(sum(sizes)).split(sizes, 1), positions.split(sizes, 1), strict=True)
        slots = cache.slot_ids[:cache.visible]
        self.mask = additive(slots >= starts, cache.dtype)[:, None]
        self.committed = slots < starts

    def feed(self, tokens: Tensor, hidden: Tensor, parent: Tensor) -> tuple[Tensor, Tensor]:
        """tokens [B, M] of the target's vocabulary, hidden [B, P, h] of the level before, parent [B or 1, M]: each
        node's parent in that level, 0 under the root -> hidden [B, M, h], logits [B, M, Vd]."""
        slots, positions = next(self.places)
        self.cache.begin(slots)
        self.mask = mask = pick(self.mask, parent).scatter_(2, slots[..., None], 0.0)
        if self.head.model.window is not None:  # a committed token's slot is its position
            far = self.cache.slot_ids[:self.cache.visible] <= positions[:, :1] - self.head.model.window
            mask = torch.minimum(mask, additive(far & self.committed, self.cache.dtype)[:, None])
        hidden = self.head.step(tokens, pick(hidden, parent), positions, mask[:, None], self.cache)
        return hidden, self.head.logits(hidden)
