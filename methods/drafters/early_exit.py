"""Early exit: the first layers of the target draft for the whole model (self-speculative decoding).

The state after the first E layers goes through the target's final norm and LM head. These layers read and extend the
target's own cache, which already holds their keys and values for the committed tokens, so no second cache is needed;
verification overwrites the entries written while drafting. The target must be trained for early exit (LayerSkip
checkpoints, the embedded target); with any other model the output stays correct, but few drafts are accepted.

Source: Elhoushi et al. 2024, "LayerSkip", section 4.3; the authors' 7B runs exit at layer 8 and draft 6 tokens. Unlike
their code, verification recomputes the first E layers of the draft tokens: one forward, as for every other drafter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import PositiveInt
from torch import Tensor

from methods.drafters.base import DraftSettings, Layered, Proposer, StopsEarly
from methods.drafters.model import ChainProposer
from methods.engine.device import upload
from methods.sampling import Sampling
from methods.trees.draft import Draft

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.cache import SlotCache
    from methods.engine.language_model import LanguageModel


class EarlyExit(StopsEarly):
    """Options of early exit.

    exit_layer  E, the number of layers that draft.
    sample      at T > 0 draw the candidates from the draft's processed distribution; false: always its argmax.
    """

    has_q = True
    has_bonus_q = True
    exit_layer: PositiveInt = 2
    sample: bool = True

    @property
    def chain(self) -> bool:
        return True

    def samples(self, sampling: Sampling) -> bool:
        return self.sample and not sampling.greedy

    def num_uniforms(self, length: int) -> int:
        return length

    def forwards(self, length: int, levels: int) -> tuple[int, ...]:
        return self.chain_forwards(length, levels)

    def check_target(self, target: Layered) -> None:
        if self.exit_layer >= target.layers:
            from methods.engine.source import ModelError

            raise ModelError(f"drafter.exit_layer={self.exit_layer}: {target.source} has {target.layers} layers, and "
                             f"drafting must leave out at least one; give 1 to {target.layers - 1}")

    def start(self, target: LanguageModel, model: None, settings: DraftSettings,
              rows: list[list[int]], slots: int) -> Proposer:
        return _FirstLayers(target.first_layers(self.exit_layer), settings, self.samples(settings.sampling),
                            self.stop_below)


class _FirstLayers(ChainProposer):
    def attach_target_cache(self, cache: SlotCache) -> None:
        self.cache = cache

    def keep(self, places: list[int]) -> None:
        """Nothing to do: the cache is the target's."""

    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        committed = self.cache.lengths
        draft = self.draft(upload([row[-1:] for row in rows], self.model.device), u)
        self.cache.lengths = committed
        return draft
