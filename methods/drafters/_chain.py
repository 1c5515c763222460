"""Draft a chain with a causal LM, token by token: shared by the drafters that run a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from methods.drafters.base import DraftSettings, Proposer
from methods.sampling import draw
from methods.trees.draft import Draft

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.cache import SlotCache
    from methods.engine.language_model import LanguageModel


class ChainProposer(Proposer):
    """Drafts a chain of K tokens with `model`. Subclasses set `cache`.

    With `stop_below` a row's draft ends before the first token for which the largest probability of the draft's raw
    softmax is below it. This depends only on the tokens before, so speculative sampling stays exact."""

    cache: SlotCache

    def __init__(self, model: LanguageModel, settings: DraftSettings, sampled: bool, stop_below: float = 0.0):
        self.model, self.settings, self.sampled, self.stop_below = model, settings, sampled, stop_below

    def keep(self, places: list[int]) -> None:
        self.cache.keep(places)

    def draft(self, tokens: Tensor, u: Tensor) -> Draft:
        """Append `tokens` [B, n], the last of them the root, to the cache, then draft K tokens with the uniforms `u`
        [B, K]. The cache then holds all tokens fed."""
        path = [tokens[:, -1]]
        logits: list[Tensor] = []
        q: list[Tensor] = []
        hidden: list[Tensor] = []
        valid = [torch.ones_like(path[0], dtype=torch.bool)]
        for step in range(self.settings.length):
            out = self._read(tokens, hidden)
            token = self._choose(out, u[:, step], q)
            path.append(token)
            logits.append(out)
            tokens = token[:, None]
            if self.stop_below:
                valid.append(valid[-1] & (out.softmax(-1).amax(-1) >= self.stop_below))
                if not valid[-1].any():  # waits for the device, to save the remaining draft steps
                    break
        draft = Draft.of_chain(torch.stack(path, 1), sampled=self.sampled,
                               valid=torch.stack(valid, 1) if self.stop_below else None)
        unread = torch.zeros_like(logits[0])
        behind = self._read(tokens, hidden) if self.settings.needs_hidden or self.settings.bonus_q else unread
        if self.settings.needs_hidden:
            draft.hidden = torch.stack(hidden, 1)
        if self.settings.needs_q:
            logits.append(behind)
            draft.logits, draft.q = torch.stack(logits, 1), torch.stack([torch.ones_like(q[0]), *q], 1)
        return draft

    def _read(self, tokens: Tensor, hidden: list[Tensor]) -> Tensor:
        """Feed `tokens` [B, n]; returns the logits [B, V] after the last and appends its state to `hidden`."""
        out = self.model.forward(tokens, self.cache, keep=1, hidden=self.settings.needs_hidden)
        self.cache.advance(tokens.shape[1])
        if out.hidden is not None:
            hidden.append(out.hidden[:, -1])
        return out.logits[:, 0]

    def _choose(self, logits: Tensor, u: Tensor, q: list[Tensor]) -> Tensor:
        """The next draft token [B] from `logits` [B, V]; appends its probability to `q` if the rule needs it."""
        if self.sampled:
            probs = self.settings.sampling.probs(logits)
            token = draw(probs, u)
        else:
            token = logits.argmax(-1)
        if self.settings.needs_q:
            probs = probs if self.sampled else logits.softmax(-1)
            q.append(probs.gather(-1, token[:, None])[:, 0])
        return token
