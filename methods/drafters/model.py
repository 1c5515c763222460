"""A smaller causal LM as the drafter (speculative sampling, SpS): a chain of K tokens, drawn or greedy.

Source: Leviathan et al. 2023 and Chen et al. 2023, Algorithm 1 resp. 2 (the drafting part)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from methods.drafters.base import Drafter, DraftSettings, Proposer
from methods.sampling import draw
from methods.tree import Draft

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.models import LanguageModel


class ModelDrafter(Drafter):
    """`sample`: at T > 0 draw the candidates from the draft's processed distribution; false: always its argmax."""

    needs = "draft"
    has_q = True
    has_hidden = True
    sample: bool = True

    def samples(self, sampling) -> bool:
        return self.sample and not sampling.greedy

    def uniforms(self, length: int) -> int:
        return length

    def start(self, target: LanguageModel, model: LanguageModel | None, settings: DraftSettings,
              rows: list[list[int]], slots: int) -> Proposer:
        return _Chain(model, settings, self.samples(settings.sampling), rows, slots)


class _Chain(Proposer):
    def __init__(self, model: LanguageModel, settings: DraftSettings, sampled: bool, rows: list[list[int]], slots: int):
        self.model, self.settings, self.sampled = model, settings, sampled
        self.cache = model.new_cache(len(rows), slots)
        model.prefill(rows, self.cache)

    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        """Feed what the target has committed since, then draft token by token.

        All rows feed the same number of tokens: a row that misses fewer writes a few cached ones again, in place."""
        cache, length = self.cache, self.settings.length
        # cached and true: all that was fed, and the drafts that came true (the last draft token may not have been fed)
        known = [min(len(row) - 1, n) for row, n in zip(rows, cache.lengths, strict=True)]
        missing = max(len(row) - n for row, n in zip(rows, known, strict=True))
        cache.lengths = [len(row) - missing for row in rows]
        tokens = torch.tensor([row[-missing:] for row in rows], device=self.model.device)
        path, logits, q, hidden = [tokens[:, -1]], [], [], []
        for step in range(length):
            out = self._read(tokens, hidden)
            token = self._choose(out, u[:, step], q)
            path.append(token)
            logits.append(out)
            tokens = token[:, None]
        draft = Draft.of_chain(torch.stack(path, 1), sampled=self.sampled)
        if self.settings.needs_hidden:
            self._read(tokens, hidden)  # the last draft token too
            draft.hidden = torch.stack(hidden, 1)
        if self.settings.needs_q:
            logits.append(torch.zeros_like(logits[0]))
            draft.logits, draft.q = torch.stack(logits, 1), torch.stack([torch.ones_like(q[0]), *q], 1)
        return draft

    def _read(self, tokens: Tensor, hidden: list[Tensor]) -> Tensor:
        """Feed `tokens` [B, n]; the logits [B, V] behind the last, whose state goes to `hidden` where it is wanted."""
        out = self.model.forward(tokens, self.cache, keep=1, hidden=self.settings.needs_hidden)
        self.cache.lengths = [n + tokens.shape[1] for n in self.cache.lengths]
        if out.hidden is not None:
            hidden.append(out.hidden[:, -1])
        return out.logits[:, 0]

    def _choose(self, logits: Tensor, u: Tensor, q: list[Tensor]) -> Tensor:
        """The next draft token [B] from `logits` [B, V]; appends its probability to `q` where the rule wants it."""
        if self.sampled:
            probs = self.settings.sampling.probs(logits)
            token = draw(probs, u)
        else:
            token = logits.argmax(-1)
            probs = logits.softmax(-1) if self.settings.needs_q else None
        if self.settings.needs_q:
            q.append(probs.gather(-1, token[:, None])[:, 0])
        return token
