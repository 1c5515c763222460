"""A smaller causal LM as the drafter (speculative sampling, SpS): a chain of K tokens, drawn or greedy, or a tree.

Source: Leviathan et al. 2023 and Chen et al. 2023, Algorithm 1 resp. 2 (the drafting part); trees of sampled siblings:
methods/trees/sampled.py."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from pydantic import PositiveInt
from torch import Tensor

from methods.drafters.base import Branches, DraftSettings, Layered, Proposer, StopsEarly
from methods.engine.device import upload
from methods.sampling import Sampling, draw
from methods.trees.draft import Draft
from methods.trees.shaped import ShapedTree

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.cache import SlotCache
    from methods.engine.language_model import LanguageModel

Read = Callable[[Tensor | None], Tensor]
"""Feeds a token [B] to the draft model, or at first None: the root; returns the logits [B, V] behind it."""


class _DrawsTokens(StopsEarly):
    """A causal LM that drafts.

    sample  at T > 0 draw the candidates from the draft's processed distribution; false: always its likeliest.
    """

    has_q = True
    has_bonus_q = True
    sample: bool = True

    def samples(self, sampling: Sampling) -> bool:
        return self.sample and not sampling.greedy

    def num_uniforms(self, length: int) -> int:
        return self.nodes(length) - 1

    def forwards(self, length: int, levels: int) -> tuple[int, ...]:
        return self.chain_forwards(length, levels)


class ModelDrafter(_DrawsTokens, Branches):
    """A draft model."""

    model_role = "draft"

    def has_hidden(self) -> bool:
        return self.is_chain()

    def is_chain(self) -> bool:
        return max(self.branching, default=1) == 1

    def nodes(self, length: int) -> int:
        return self.regular(length).nodes

    def forwards(self, length: int, levels: int) -> tuple[int, ...]:
        if self.is_chain():
            return super().forwards(length, levels)
        return (1, *accumulate(self.regular(length).inner[1:]))

    def start(self, target: LanguageModel, model: LanguageModel, settings: DraftSettings,
              rows: list[list[int]], slots: int) -> Proposer:
        sampled = self.samples(settings.sampling)
        if self.is_chain():
            return _Chain(model, settings, sampled, rows, slots, self.stop_below)
        tree = ShapedTree(self.regular(settings.length), settings.sampling, sampled, self.replacement)
        return TreeProposer(model, settings, tree, rows, slots)


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


class TreeProposer(Proposer):
    """Drafts a tree with `model`. For every level all nodes above it are fed again behind the committed tokens, in one
    forward with the tree's mask; the cache keeps the committed tokens alone."""

    def __init__(self, model: LanguageModel, settings: DraftSettings, tree: ShapedTree, rows: list[list[int]],
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
        first, sizes = 0, self.tree.sizes
        for depth, size in enumerate(sizes[1:], start=1):
            drawn.append(self.tree.siblings(depth, contexts, u[:, first:first + size]))
            logits.append(contexts)
            first += size
            if depth < len(sizes) - 1:
                nodes = torch.cat([siblings.tokens for siblings in drawn], 1)
                last = torch.arange(first - size, first, device=self.model.device)
                contexts = self.model.forward(nodes, self.cache, ancestors=self.ancestors[:, :first, :first],
                                              depth=self.depth[:, :first], keep=last).logits
        return self.tree.assemble(root, drawn, logits if self.settings.needs_q else None)

    def _catch_up(self, rows: list[list[int]]) -> Tensor:
        """Feed the tokens committed since the last draft, the root included; returns the logits [B, V] behind it."""
        out = self.model.forward(self.cache.unread(rows), self.cache, keep=1)
        self.cache.set_lengths([len(row) for row in rows])
        return out.logits[:, 0]


class EarlyExit(_DrawsTokens):
    """Early exit: the first layers of the target draft for the whole model (self-speculative decoding).

    The state after the first E layers goes through the target's final norm and LM head. These layers read and extend
    the target's own cache, which already holds their keys and values for the committed tokens, so no second cache is
    needed; verification overwrites the entries written while drafting. The target must be trained for early exit
    (LayerSkip checkpoints, the embedded target); with any other model the output stays correct, but few drafts are
    accepted.

    Source: Elhoushi et al. 2024, "LayerSkip", section 4.3; the authors' 7B runs exit at layer 8 and draft 6 tokens.
    Unlike their code, verification recomputes the first E layers of the draft tokens: one forward, as for every other
    drafter.

    exit_layer  E, the number of layers that draft.
    """

    exit_layer: PositiveInt = 2

    def is_chain(self) -> bool:
        return True

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
        self.cache.set_lengths(committed)
        return draft
