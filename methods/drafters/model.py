"""A smaller causal LM as the drafter (speculative sampling, SpS): a chain of K tokens, drawn or greedy, or a tree.

Source: Leviathan et al. 2023 and Chen et al. 2023, Algorithm 1 resp. 2 (the drafting part); trees of sampled siblings:
methods/trees/sampled.py."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from pydantic import Field
from torch import Tensor

from methods.drafters._chain import ChainProposer
from methods.drafters._tree import TreeProposer
from methods.drafters.base import DraftSettings, Proposer, StopsEarly
from methods.sampling import Sampling
from methods.trees.draft import Draft
from methods.trees.sampled import Branching, SampledTree
from methods.trees.static import regular

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.language_model import LanguageModel


class ModelDrafter(StopsEarly):
    """Options of a draft model.

    sample       at T > 0 draw the candidates from the draft's processed distribution; false: always its likeliest.
    branching    siblings of each node, from the root's depth on; 1 behind the last. Empty: a chain.
    replacement  drawn siblings are independent; false: each is drawn without the tokens of those before it.
    """

    model_role = "draft"
    has_q = True
    has_bonus_q = True
    sample: bool = True
    branching: Branching = Field([], exclude_if=lambda factors: not factors)  # unused: a cell's identity lacks it
    replacement: bool = Field(False, exclude_if=lambda given: not given)

    @property
    def has_hidden(self) -> bool:  # type: ignore[override]  # only chains carry them
        return self.chain

    @property
    def chain(self) -> bool:
        return max(self.branching, default=1) == 1

    def samples(self, sampling: Sampling) -> bool:
        return self.sample and not sampling.greedy

    def nodes(self, length: int) -> int:
        return regular(tuple(self.branching), length).nodes

    def num_uniforms(self, length: int) -> int:
        return self.nodes(length) - 1

    def forwards(self, length: int, levels: int) -> tuple[int, ...]:
        if self.chain:
            return self.chain_forwards(length, levels)
        return (1, *accumulate(regular(tuple(self.branching), length).inner[1:]))

    def start(self, target: LanguageModel, model: LanguageModel, settings: DraftSettings,
              rows: list[list[int]], slots: int) -> Proposer:
        sampled = self.samples(settings.sampling)
        if self.chain:
            return _Chain(model, settings, sampled, rows, slots, self.stop_below)
        shape = regular(tuple(self.branching), settings.length)
        tree = SampledTree(shape, settings.sampling, sampled, self.replacement)
        return TreeProposer(model, settings, tree, rows, slots)


class _Chain(ChainProposer):
    def __init__(self, model: LanguageModel, settings: DraftSettings, sampled: bool, rows: list[list[int]], slots: int,
                 stop_below: float):
        super().__init__(model, settings, sampled, stop_below)
        self.cache = model.new_cache(len(rows), slots)
        model.prefill(rows, self.cache)

    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        """Feed the tokens committed since the last draft, an accepted last draft token too, then draft token by
        token."""
        return self.draft(self.cache.unread(rows), u)
