"""A smaller causal LM as the drafter (speculative sampling, SpS): a chain of K tokens, drawn or greedy.

Source: Leviathan et al. 2023 and Chen et al. 2023, Algorithm 1 resp. 2 (the drafting part)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from methods.drafters._chain import ChainProposer
from methods.drafters.base import Drafter, DraftSettings, Proposer
from methods.engine.upload import upload
from methods.sampling import Sampling
from methods.trees.draft import Draft

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.language_model import LanguageModel


class ModelDrafter(Drafter):
    """sample: at T > 0 draw the candidates from the draft's processed distribution; false: always its argmax."""

    model_role = "draft"
    has_q = True
    has_hidden = True
    has_bonus_q = True
    sample: bool = True

    @property
    def chain(self) -> bool:
        return True

    def samples(self, sampling: Sampling) -> bool:
        return self.sample and not sampling.greedy

    def num_uniforms(self, length: int) -> int:
        return length

    def start(self, target: LanguageModel, model: LanguageModel, settings: DraftSettings,
              rows: list[list[int]], slots: int) -> Proposer:
        return _Chain(model, settings, self.samples(settings.sampling), rows, slots)


class _Chain(ChainProposer):
    def __init__(self, model: LanguageModel, settings: DraftSettings, sampled: bool, rows: list[list[int]], slots: int):
        super().__init__(model, settings, sampled)
        self.cache = model.new_cache(len(rows), slots)
        model.prefill(rows, self.cache)

    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        """Feed the tokens committed since the last draft, then draft token by token.

        All rows feed the same number of tokens: a row with fewer new tokens rewrites some cached ones in place."""
        # Valid cache entries: committed tokens, accepted drafts included (the last draft token may not have been fed).
        known = [min(len(row) - 1, n) for row, n in zip(rows, self.cache.lengths, strict=True)]
        missing = max(len(row) - n for row, n in zip(rows, known, strict=True))
        self.cache.lengths = [len(row) - missing for row in rows]
        return self.draft(upload([row[-missing:] for row in rows], self.model.device), u)
