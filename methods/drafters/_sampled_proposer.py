"""Draft a regular tree of sampled siblings, or a sampled chain, with an EAGLE head."""

from __future__ import annotations

import torch
from torch import Tensor

from methods.drafters._eagle_proposer import HeadProposer
from methods.drafters._levels import Levels
from methods.drafters.base import DraftSettings
from methods.engine.cache import SlotCache
from methods.heads.head import Head
from methods.trees.draft import Draft
from methods.trees.sampled import SampledTree, Siblings


class SampledProposer(HeadProposer):
    """The nodes of all levels but the last are fed to the head."""

    def __init__(self, head: Head, settings: DraftSettings, rows: list[list[int]], slots: int, tree: SampledTree):
        super().__init__(head, settings, rows, slots, sum(tree.sizes[1:-1]))
        self.tree = tree
        tree.as_draft(self.device)  # made before the first cycle

    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor, u: Tensor) -> Draft:
        return self.tree.assemble(root, *self.cache.run(_grow, self.head, self.cache, self.tree, self.settings.needs_q,
                                                        hidden, logits, u))


def _grow(head: Head, cache: SlotCache, tree: SampledTree, needs_q: bool, hidden: Tensor, logits: Tensor,
          u: Tensor) -> tuple[list[Siblings], list[Tensor] | None]:
    """See `HeadProposer.grow`: the siblings drawn at each depth and, if they are needed, the logits [B, M, V] that they
    were drawn from."""
    sizes = tree.sizes
    levels = Levels(head, cache, sizes[1:-1])
    drawn, contexts = [], []
    first = 0
    for level, size in enumerate(sizes[1:], start=1):
        parents = sizes[level - 1]
        contexts.append(head.over_target(logits))
        drawn.append(tree.siblings(contexts[-1], u[:, first:first + size].view(-1, parents, size // parents)))
        first += size
        if level < len(sizes) - 1:
            parent = torch.arange(parents, device=u.device).repeat_interleave(size // parents)
            hidden, logits = levels.feed(drawn[-1].tokens.flatten(1), hidden, parent[None])
    return drawn, contexts if needs_q else None
