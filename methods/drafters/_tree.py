"""Draft a regular tree with a causal LM, level by level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from methods.drafters.base import DraftSettings, Proposer
from methods.engine.device import upload
from methods.trees.draft import Draft
from methods.trees.sampled import SampledTree

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.language_model import LanguageModel


class TreeProposer(Proposer):
    """Drafts a tree with `model`. For every level all nodes above it are fed again behind the committed tokens, in one
    forward with the tree's mask; the cache keeps the committed tokens alone."""

    def __init__(self, model: LanguageModel, settings: DraftSettings, tree: SampledTree, rows: list[list[int]],
                 slots: int):
        self.model, self.settings, self.tree = model, settings, tree
        self.cache = model.new_cache(len(rows), slots)
        model.prefill(rows, self.cache)
        shape = tree.as_draft(model.device)
        self.ancestors, self.depth = shape.ancestors[:, 1:, 1:], shape.depth[:, 1:] - 1  # behind the root

    def keep(self, places: list[int]) -> None:
        self.cache.keep(places)

    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        root = upload([row[-1:] for row in rows], self.model.device)
        contexts, drawn, logits = self._catch_up(rows)[:, None], [], []
        first = 0
        for level, size in enumerate(self.tree.sizes[1:], start=1):
            shape = (len(rows), contexts.shape[1], size // contexts.shape[1])
            drawn.append(self.tree.siblings(contexts, u[:, first:first + size].view(shape)))
            logits.append(contexts)
            first += size
            if level < len(self.tree.sizes) - 1:
                nodes = torch.cat([siblings.tokens.flatten(1) for siblings in drawn], 1)
                last = torch.arange(first - size, first, device=self.model.device)
                contexts = self.model.forward(nodes, self.cache, ancestors=self.ancestors[:, :first, :first],
                                              depth=self.depth[:, :first], keep=last).logits
        return self.tree.assemble(root, drawn, logits if self.settings.needs_q else None)

    def _catch_up(self, rows: list[list[int]]) -> Tensor:
        """Feed the tokens committed since the last draft, the root included; returns the logits [B, V] behind it."""
        out = self.model.forward(self.cache.unread(rows), self.cache, keep=1)
        self.cache.lengths = [len(row) for row in rows]
        return out.logits[:, 0]
