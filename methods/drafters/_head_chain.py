"""Draft a chain with an EAGLE head that ends where the head is unsure."""

from __future__ import annotations

import torch
from torch import Tensor

from methods.drafters._chain import draft_chain
from methods.drafters._eagle_proposer import HeadProposer
from methods.drafters._levels import Levels
from methods.drafters.base import DraftSettings
from methods.heads.head import Head
from methods.trees.draft import Draft


class HeadChain(HeadProposer):
    """As `draft_chain`. Each token is a forward of the head by itself, not a part of a recorded graph: whether there is
    a next one is known on the host alone."""

    def __init__(self, head: Head, settings: DraftSettings, rows: list[list[int]], slots: int, sampled: bool,
                 stop_below: float):
        super().__init__(head, settings, rows, slots, settings.length - 1)
        self.sampled, self.stop_below = sampled, stop_below

    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor, u: Tensor) -> Draft:
        levels = Levels(self.head, self.cache, [1] * (self.settings.length - 1))
        parent = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        state = hidden

        def read(token: Tensor | None) -> Tensor:
            nonlocal state
            found = logits
            if token is not None:
                state, found = levels.feed(token[:, None], state, parent)
            return self.head.over_target(found)[:, 0]

        draft, contexts, _ = draft_chain(root[:, 0], u, read, self.settings, self.sampled, self.stop_below)
        if self.settings.needs_q:
            draft.logits = torch.cat([contexts, torch.zeros_like(contexts[:, :1])], 1)
        return draft
