"""Early exit: the target's own first layers draft for all of it (self-speculative decoding).

The state behind the first E layers goes through the target's final norm and LM head. These layers read and extend the
target's own cache: behind the committed tokens it already holds what they would compute, so there is no second cache
and nothing to catch up with; what drafting writes there, the verification writes again. The target must have been
trained to be readable early (LayerSkip checkpoints, the embedded target); any other model drafts badly, not wrongly.

Source: Elhoushi et al. 2024, "LayerSkip", section 4.3; the authors' 7B runs exit at layer 8 and draft 6 tokens. Unlike
theirs, the verification recomputes the first E layers of the draft tokens: one forward as for every other drafter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from pydantic import PositiveInt
from torch import Tensor

from methods.drafters._chain import ChainProposer
from methods.drafters.base import Drafter, DraftSettings, Proposer
from methods.sampling import Sampling
from methods.trees.draft import Draft

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.cache import SlotCache
    from methods.engine.language_model import LanguageModel


class EarlyExit(Drafter):
    """exit_layer: E, how many layers draft. sample: at T > 0 draw the candidates from the draft's processed
    distribution; false: always its argmax."""

    has_q = True
    exit_layer: PositiveInt = 2
    sample: bool = True

    def samples(self, sampling: Sampling) -> bool:
        return self.sample and not sampling.greedy

    def num_uniforms(self, length: int) -> int:
        return length

    def check_target(self, target: LanguageModel) -> None:
        if self.exit_layer >= target.layers:
            from methods.engine.source import ModelError

            raise ModelError(f"drafter.exit_layer={self.exit_layer}: {target.source} has {target.layers} layers, and "
                             f"an exit must leave some of them out; give 1 to {target.layers - 1}")

    def start(self, target: LanguageModel, model: None, settings: DraftSettings,
              rows: list[list[int]], slots: int) -> Proposer:
        return _FirstLayers(target.first_layers(self.exit_layer), settings, self.samples(settings.sampling))


class _FirstLayers(ChainProposer):
    def attach_target_cache(self, cache: SlotCache) -> None:
        self.cache = cache

    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        committed = self.cache.lengths
        draft = self.draft(torch.tensor([row[-1:] for row in rows], device=self.model.device), u)
        self.cache.lengths = committed
        return draft
