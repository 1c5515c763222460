"""A smaller causal LM as the drafter (speculative sampling, SpS): a chain of K tokens, drawn or
greedy, or a tree.

Source: Leviathan et al. 2023 and Chen et al. 2023, Algorithm 1 resp. 2 (the drafting part); trees
of sampled siblings: methods/trees/sampled.py."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from methods.drafters.base import Branches, Drafter, DraftSettings, Layered, Proposer, TokenRows
from methods.engine.device import padded, upload
from methods.sampling import Sampling, draw
from methods.trees.draft import Draft
from methods.trees.shaped import ShapedTree

# transformers is slow to import, and a command is checked before anything is loaded
if TYPE_CHECKING:
    from methods.engine.cache import SlotCache
    from methods.engine.language_model import LanguageModel


class _DrawsTokens(Drafter):
    """A causal LM that drafts.

    sample      at T > 0 draw the candidates from the draft's processed distribution; false: always
                its likeliest.
    stop_below  a chain ends before the first token for which the largest probability of the draft's
                raw softmax is below this; 0: never. llama.cpp's --spec-draft-p-min (there of the
                ten likeliest tokens), 0.75 by default until 2026 and 0 since; BiLD's fallback
                policy (Kim et al. 2023) uses 0.6.
    """

    has_q = True
    has_bonus_q = True
    sample: bool = True
    # unused: a cell's identity lacks it
    stop_below: float = Field(0.0, ge=0, le=1, exclude_if=lambda share: not share)

    @model_validator(mode="after")
    def _check_stop(self) -> Self:
        if self.stop_below and not self.is_chain():
            raise ValueError("stop_below applies only to chains; leave out the tree or stop_below")
        return self

    def samples(self, sampling: Sampling) -> bool:
        return self.sample and not sampling.greedy

    def num_uniforms(self, length: int) -> int:
        return self.nodes(length) - 1

    def forwards(self, length: int, levels: int) -> tuple[int, ...]:
        """A draft that ends early has read the context of the token that it leaves out."""
        return (1,) * (min(length, levels + 1) if self.stop_below else length)


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

    def start(
        self,
        target: LanguageModel,
        model: LanguageModel,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
    ) -> Proposer:
        sampled = self.samples(settings.sampling)
        if self.is_chain():
            return _Chain(model, settings, sampled, rows, slots, self.stop_below)
        tree = ShapedTree(
            self.regular(settings.length), settings.sampling, sampled, self.replacement
        )
        return TreeProposer(model, settings, tree, rows, slots)


class ChainProposer(Proposer):
    """Drafts a chain of K tokens with `model`, drawn or its likeliest. Subclasses set `cache`.

    With `stop_below` a row's draft ends before the first token for which the largest probability of
    the draft's raw softmax is below it. This depends only on the tokens before, so speculative
    sampling stays exact."""

    cache: SlotCache

    def __init__(
        self, model: LanguageModel, settings: DraftSettings, sampled: bool, stop_below: float = 0.0
    ):
        self.model, self.settings = model, settings
        self.sampled, self.stop_below = sampled, stop_below

    def keep(self, places: list[int]) -> None:
        self.cache.keep(places)

    def draft(self, tokens: Tensor, u: Tensor) -> Draft:
        """Append `tokens` [B, n], the last of them the root, to the cache, then draft K tokens with
        the uniforms `u` [B, K]. The cache then holds all tokens fed."""
        settings, root, hidden = self.settings, tokens[:, -1], list[Tensor]()
        path, contexts = [root], list[Tensor]()
        own_q = [torch.ones_like(root, dtype=torch.float32)]
        valid = [torch.ones_like(root, dtype=torch.bool)]
        for step in range(settings.length):
            logits = self._read(path[-1][:, None] if step else tokens, hidden)
            logits = self.penalised(logits, path)
            probs = settings.sampling.probs(logits) if self.sampled else None
            token = logits.argmax(-1) if probs is None else draw(probs, u[:, step])
            if settings.needs_q:
                q = logits.softmax(-1) if probs is None else probs
                own_q.append(q.gather(-1, token[:, None])[:, 0])
            path.append(token)
            contexts.append(logits)
            if self.stop_below:
                valid.append(valid[-1] & (logits.softmax(-1).amax(-1) >= self.stop_below))
                if not valid[-1].any():  # waits for the device, to save the remaining draft steps
                    break
        reads_last = settings.needs_hidden or settings.bonus_q
        contexts.append(
            self.penalised(self._read(path[-1][:, None], hidden), path)
            if reads_last
            else torch.zeros_like(contexts[0])
        )
        draft = Draft.of_chain(
            torch.stack(path, 1),
            sampled=self.sampled,
            valid=torch.stack(valid, 1) if self.stop_below else None,
        )
        if settings.needs_hidden:
            draft.hidden = torch.stack(hidden, 1)
        if settings.needs_q:
            draft.q, draft.logits = torch.stack(own_q, 1), torch.stack(contexts, 1)
        return draft

    def penalised(self, logits: Tensor, path: list[Tensor]) -> Tensor:
        """The logits [B, V] behind the row and the drafted `path` of tokens [B]; as they are for
        drafters that take no repetition penalty."""
        return logits

    def _read(self, tokens: Tensor, hidden: list[Tensor]) -> Tensor:
        """Feed `tokens` [B, n]; returns the logits [B, V] after the last and appends its state to
        `hidden`."""
        out = self.model.forward(tokens, self.cache, keep=1, hidden=self.settings.needs_hidden)
        self.cache.advance(tokens.shape[1])
        if out.hidden is not None:
            hidden.append(out.hidden[:, -1])
        return out.logits[:, 0]


class _Chain(ChainProposer):
    def __init__(
        self,
        model: LanguageModel,
        settings: DraftSettings,
        sampled: bool,
        rows: TokenRows,
        slots: int,
        stop_below: float,
    ):
        super().__init__(model, settings, sampled, stop_below)
        self.cache = model.new_cache(len(rows), slots)
        model.prefill(rows, self.cache)

    def propose(self, rows: TokenRows, u: Tensor) -> Draft:
        """Feed the tokens committed since the last draft, an accepted last draft token too, then
        draft token by token."""
        if self.settings.sampling.penalises:
            self.earlier = padded(rows, self.model.device)
        return self.draft(self.cache.unread(rows), u)

    def penalised(self, logits: Tensor, path: list[Tensor]) -> Tensor:
        sampling = self.settings.sampling
        if not sampling.penalises:
            return logits
        return sampling.penalised(logits, torch.cat([self.earlier, torch.stack(path, 1)], 1))


class TreeProposer(Proposer):
    """Drafts a tree with `model`. For every level all nodes above it are fed again behind the
    committed tokens, in one forward with the tree's mask; the cache keeps the committed tokens
    alone."""

    def __init__(
        self,
        model: LanguageModel,
        settings: DraftSettings,
        tree: ShapedTree,
        rows: TokenRows,
        slots: int,
    ):
        self.model, self.settings, self.tree = model, settings, tree
        self.cache = model.new_cache(len(rows), slots)
        model.prefill(rows, self.cache)
        shape = tree.as_draft(model.device)
        # behind the root
        self.ancestors = shape.ancestors[:, 1:, 1:]
        self.depth = shape.depth[:, 1:] - 1

    def keep(self, places: list[int]) -> None:
        self.cache.keep(places)

    def propose(self, rows: TokenRows, u: Tensor) -> Draft:
        root = upload([row[-1:] for row in rows], self.model.device)
        contexts, drawn, logits = self._catch_up(rows)[:, None], [], []
        first, sizes = 0, self.tree.sizes
        for depth, size in enumerate(sizes[1:], start=1):
            drawn.append(self.tree.siblings(depth, contexts, u[:, first : first + size]))
            logits.append(contexts)
            first += size
            if depth < len(sizes) - 1:
                nodes = torch.cat([siblings.tokens for siblings in drawn], 1)
                last = torch.arange(first - size, first, device=self.model.device)
                contexts = self.model.forward(
                    nodes,
                    self.cache,
                    ancestors=self.ancestors[:, :first, :first],
                    depth=self.depth[:, :first],
                    keep=last,
                ).logits
        return self.tree.assemble(root, drawn, logits if self.settings.needs_q else None)

    def _catch_up(self, rows: TokenRows) -> Tensor:
        """Feed the tokens committed since the last draft, the root included; returns the logits [B,
        V] behind it."""
        out = self.model.forward(self.cache.unread(rows), self.cache, keep=1)
        self.cache.set_lengths([len(row) for row in rows])
        return out.logits[:, 0]


class EarlyExit(_DrawsTokens):
    """Early exit: the first layers of the target draft for the whole model (self-speculative
    decoding).

    The state after the first E layers goes through the target's final norm and LM head. These
    layers read and extend the target's own cache, which already holds their keys and values for the
    committed tokens, so no second cache is needed; verification overwrites the entries written
    while drafting. The target must be trained for early exit (LayerSkip checkpoints, the embedded
    target); with any other model the output stays correct, but few drafts are accepted.

    Source: Elhoushi et al. 2024, "LayerSkip", section 4.3; the authors' 7B runs exit at layer 8 and
    draft 6 tokens. Unlike their code, verification recomputes the first E layers of the draft
    tokens: one forward, as for every other drafter.

    exit_layer  E, the number of layers that draft.
    """

    exit_layer: PositiveInt = 2

    def is_chain(self) -> bool:
        return True

    def check_target(self, target: Layered) -> None:
        if self.exit_layer >= target.layers:
            from methods.engine.source import ModelError

            raise ModelError(
                f"drafter.exit_layer={self.exit_layer}: {target.source} has {target.layers} "
                f"layers, and drafting must leave out at least one; give 1 to {target.layers - 1}"
            )

    def start(
        self,
        target: LanguageModel,
        model: None,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
    ) -> Proposer:
        return _FirstLayers(
            target.first_layers(self.exit_layer),
            settings,
            self.samples(settings.sampling),
            self.stop_below,
        )


class _FirstLayers(ChainProposer):
    def attach_target_cache(self, cache: SlotCache) -> None:
        self.cache = cache

    def keep(self, places: list[int]) -> None:
        """Nothing to do: the cache is the target's."""

    def propose(self, rows: TokenRows, u: Tensor) -> Draft:
        committed = self.cache.lengths
        draft = self.draft(upload([row[-1:] for row in rows], self.model.device), u)
        self.cache.set_lengths(committed)
        return draft
