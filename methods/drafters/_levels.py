"""Feed a tree to an EAGLE head level by level; and whether that is right on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from methods.engine.attention import Layout, additive
from methods.engine.cache import SlotCache
from methods.engine.probe import TOLERANCE, off
from methods.engine.source import ModelError
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


READ = 12
"""Tokens that `check_head` lets a head read before the tree."""


@torch.no_grad()
def check_head(head: Head) -> None:
    """Compare the two branches of a small tree with the same tokens as plain sequences through the head's own modules,
    without a cache. Raises ModelError, one line, where they differ by more than rounding."""
    weight, size, window = next(head.model.parameters()), head.model.config.hidden_size, head.model.window
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(1, READ, size, generator=draw).to(weight)
    tokens = torch.randint(head.vocab_size, (1, READ + 4), generator=draw).to(weight.device)
    ids, first, second = tokens.split([READ, 2, 2], 1)
    cache = head.new_cache(1, READ + 8)
    cache.reserve(READ)
    layout = Layout.of(cache, READ, True)
    mask = None if window is None else layout.mask(cache.dtype, window)
    last = head.step(ids, states, layout.positions, mask, cache)[:, -1:]
    cache.lengths = [READ]
    cache.reserve(4)
    levels, crossed = Levels(head, cache, (2, 2)), torch.tensor([[1, 0]], device=weight.device)
    inner, _ = levels.feed(first, last, torch.zeros_like(crossed))
    outer, logits = levels.feed(second, inner, crossed)
    place = torch.arange(READ + 2, device=weight.device)
    seen = place[:, None] - place
    visible = ((seen >= 0) & (seen < (window or READ + 2)))[None, None]
    for node, parent in enumerate(crossed[0].tolist()):
        path = torch.cat([ids, first[:, parent:parent + 1], second[:, node:node + 1]], 1)
        fed = torch.cat([states, last, inner[:, parent:parent + 1]], 1)
        want = head.model(head.embed(path), fed, mask=visible)[0, READ:]
        states_off = off(torch.stack([inner[0, parent], outer[0, node]]), want).max()
        worst = float(torch.maximum(states_off, off(logits[0, node:node + 1], head.logits(want[1:])).max()))
        if not worst <= TOLERANCE[weight.dtype]:
            raise ModelError(f"{head.source}: a tree through this head is not what its tokens give in a row: "
                             f"{worst:.1%} off; give engine.decoder=transformers, or another drafter")
