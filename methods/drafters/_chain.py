"""Draft a chain token by token: the steps, and the drafters that run a language model for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from methods.drafters.base import DraftSettings, Proposer
from methods.sampling import draw
from methods.trees.draft import Draft

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.cache import SlotCache
    from methods.engine.language_model import LanguageModel


Read = Callable[[Tensor | None], Tensor]
"""Feeds a token [B] to the draft model, or at first None: the root; returns the logits [B, V] behind it."""


def draft_chain(root: Tensor, u: Tensor, read: Read, settings: DraftSettings, sampled: bool,
                stop_below: float) -> tuple[Draft, Tensor, Tensor]:
    """A chain of K tokens behind `root` [B], drawn with the uniforms `u` [B, K] or the likeliest; its logits
    [B, K, V], and the last token [B], which is not read.

    With `stop_below` a row's draft ends before the first token for which the largest probability of the draft's raw
    softmax is below it. This depends only on the tokens before, so speculative sampling stays exact."""
    path, contexts, token = [root], [], None
    own_q = [torch.ones_like(root, dtype=torch.float32)]
    valid = [torch.ones_like(root, dtype=torch.bool)]
    for step in range(settings.length):
        logits = read(token)
        probs = settings.sampling.probs(logits) if sampled else None
        token = logits.argmax(-1) if probs is None else draw(probs, u[:, step])
        if settings.needs_q:
            q = logits.softmax(-1) if probs is None else probs
            own_q.append(q.gather(-1, token[:, None])[:, 0])
        path.append(token)
        contexts.append(logits)
        if stop_below:
            valid.append(valid[-1] & (logits.softmax(-1).amax(-1) >= stop_below))
            if not valid[-1].any():  # waits for the device, to save the remaining draft steps
                break
    draft = Draft.of_chain(torch.stack(path, 1), sampled=sampled, valid=torch.stack(valid, 1) if stop_below else None)
    if settings.needs_q:
        draft.q = torch.stack(own_q, 1)
    return draft, torch.stack(contexts, 1), path[-1]


class ChainProposer(Proposer):
    """Drafts a chain of K tokens with `model` (`draft_chain`). Subclasses set `cache`."""

    cache: SlotCache

    def __init__(self, model: LanguageModel, settings: DraftSettings, sampled: bool, stop_below: float = 0.0):
        self.model, self.settings, self.sampled, self.stop_below = model, settings, sampled, stop_below

    def keep(self, places: list[int]) -> None:
        self.cache.keep(places)

    def draft(self, tokens: Tensor, u: Tensor) -> Draft:
        """Append `tokens` [B, n], the last of them the root, to the cache, then draft K tokens with the uniforms `u`
        [B, K]. The cache then holds all tokens fed."""
        hidden: list[Tensor] = []

        def read(token: Tensor | None) -> Tensor:
            return self._read(tokens if token is None else token[:, None], hidden)

        draft, logits, last = draft_chain(tokens[:, -1], u, read, self.settings, self.sampled, self.stop_below)
        behind = read(last) if self.settings.needs_hidden or self.settings.bonus_q else torch.zeros_like(logits[:, 0])
        if self.settings.needs_hidden:
            draft.hidden = torch.stack(hidden, 1)
        if self.settings.needs_q:
            draft.logits = torch.cat([logits, behind[:, None]], 1)
        return draft

    def _read(self, tokens: Tensor, hidden: list[Tensor]) -> Tensor:
        """Feed `tokens` [B, n]; returns the logits [B, V] after the last and appends its state to `hidden`."""
        out = self.model.forward(tokens, self.cache, keep=1, hidden=self.settings.needs_hidden)
        self.cache.advance(tokens.shape[1])
        if out.hidden is not None:
            hidden.append(out.hidden[:, -1])
        return out.logits[:, 0]
