"""Draft a regular tree of sampled siblings, or a sampled chain, with an EAGLE head."""

from __future__ import annotations

import torch
from torch import Tensor

from methods.drafters._eagle_proposer import HeadProposer, Levels
from methods.drafters.base import DraftSettings
from methods.heads.head import Head
from methods.trees.draft import Draft
from methods.trees.sampled import SampledTree


class SampledProposer(HeadProposer):
    """The nodes of all levels but the last are fed to the head."""

    def __init__(self, head: Head, settings: DraftSettings, rows: list[list[int]], slots: int, tree: SampledTree):
        self.max_head_nodes = sum(tree.sizes[1:-1])
        super().__init__(head, settings, rows, slots, self.max_head_nodes)
        self.tree = tree
        tree.as_draft(self.device)  # made before the first cycle
        self.u: Tensor | None = None

    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        self.u = u
        return super().propose(rows, u)

    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor) -> Draft:
        assert self.u is not None, "propose passes the uniforms on"
        levels, sizes = Levels(self, self.max_head_nodes), self.tree.sizes
        drawn, contexts = [], []
        first = 0
        for level, size in enumerate(sizes[1:], start=1):
            parents = sizes[level - 1]
            contexts.append(self.over_target(logits))
            u = self.u[:, first:first + size].view(len(root), parents, size // parents)
            drawn.append(self.tree.siblings(contexts[-1], u))
            first += size
            if level < len(sizes) - 1:
                parent = torch.arange(parents, device=self.device).repeat_interleave(size // parents)
                hidden, logits = levels.feed(drawn[-1].tokens.flatten(1), hidden[:, parent],
                                             parent[None] if levels.level else None)
        return self.tree.assemble(root, drawn, contexts if self.settings.needs_q else None)
