"""Drafting with an EAGLE head: feed it the target's features, then grow a tree or chain from its
own output."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from methods.drafters.base import DraftSettings, Proposer, TokenRows
from methods.engine.attention import NodeLayout, additive
from methods.engine.cache import SlotCache
from methods.engine.device import upload
from methods.engine.probe import TOLERANCE, off
from methods.engine.source import ModelError
from methods.heads.head import Head
from methods.trees.draft import Draft
from methods.trees.dynamic import Growth, SelectedTree, TreeShape
from methods.trees.shaped import ShapedTree, Siblings


def pick(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x [B, M, W] by index [B or 1, N] -> [B, N, W]."""
    if len(index) == 1:
        return x.index_select(1, index[0])
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


@cache
def _level_of(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """[sum of sizes] the level of each node; kept, for recordings read it where it is."""
    counts = torch.tensor(sizes, dtype=torch.long, device=device)
    return torch.arange(len(sizes), device=device).repeat_interleave(counts)


class Levels:
    """Feeds levels of `sizes` nodes to the head, behind each row's committed tokens; nothing is
    committed.

    A node attends to the committed tokens, its ancestors and itself; all nodes of a level share one
    position. Make it after `SlotCache.reserve` for the nodes of all levels."""

    def __init__(self, head: Head, cache: SlotCache, sizes: Sequence[int]):
        self.head, self.cache = head, cache
        starts = cache.starts[:, None]
        positions = starts + _level_of(tuple(sizes), cache.device)
        parts = [positions, *head.rotary(positions, cache.slots)]
        self.places = zip(
            cache.places(sum(sizes)).split(sizes, 1),
            *(part.expand(len(positions), *part.shape[1:]).split(sizes, 1) for part in parts),
            strict=True,
        )
        slots = cache.slot_ids[: cache.visible]
        self.mask = additive(slots >= starts, cache.dtype)[:, None]
        self.committed = slots < starts

    def feed(self, tokens: Tensor, hidden: Tensor, parent: Tensor) -> tuple[Tensor, Tensor]:
        """tokens [B, M] of the target's vocabulary, hidden [B, P, h] of the level before, parent [B
        or 1, M]: each node's parent in that level, 0 under the root -> hidden [B, M, h], logits [B,
        M, Vd]."""
        slots, positions, cos, sin = next(self.places)
        self.cache.begin(slots)
        self.mask = mask = pick(self.mask, parent).scatter_(2, slots[..., None], 0.0)
        if self.head.model.window is not None:  # a committed token's slot is its position
            far = (
                self.cache.slot_ids[: self.cache.visible]
                <= positions[:, :1] - self.head.model.window
            )
            mask = torch.minimum(mask, additive(far & self.committed, self.cache.dtype)[:, None])
        hidden = self.head.step(tokens, pick(hidden, parent), (cos, sin), mask[:, None], self.cache)
        return hidden, self.head.logits(hidden)


class HeadProposer(Proposer):
    """Base of all EAGLE drafters.

    The head's cache holds one entry for each committed token but the first, computed from the
    target's features: entry t from the feature at t and token t+1. The entries of a tree follow
    them; the next cycle overwrites them."""

    def __init__(
        self,
        head: Head,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
        max_head_nodes: int,
    ):
        """`max_head_nodes`: maximum number of tree nodes fed to the head per cycle."""
        if head.model.window is not None and head.model.window <= max_head_nodes:
            raise ModelError(
                f"{head.source}: its window of {head.model.window} tokens is no longer than the "
                "draft; draft less, or give another head"
            )
        self.head, self.settings = head, settings
        self.max_head_nodes = max_head_nodes
        self.cache = head.new_cache(len(rows), slots + max_head_nodes)
        self.device = self.cache.device
        self.features: Tensor | None = None
        self.counts: list[int] = []

    def on_features(self, features: Tensor, kept: Sequence[Sequence[int]]) -> None:
        self.counts = [len(nodes) for nodes in kept]
        width = max(1, *self.counts)
        if all(not nodes or nodes[-1] == len(nodes) - 1 for nodes in kept):
            self.features = features[:, :width]
        else:
            index = upload([[*nodes, *[0] * (width - len(nodes))] for nodes in kept], self.device)
            self.features = pick(features, index)

    def keep(self, places: list[int]) -> None:
        assert self.features is not None, "on_features comes first"
        self.cache.keep(places)
        self.features, self.counts = self.features[places], [self.counts[place] for place in places]

    def propose(self, rows: TokenRows, u: Tensor) -> Draft:
        root, hidden, logits = self._catch_up(rows)
        self.cache.reserve(self.max_head_nodes)
        return self.grow(root, hidden, logits, u)

    @abstractmethod
    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor, u: Tensor) -> Draft:
        """Grow a tree from `root` [B, 1], with the uniforms of `propose`; its children are drafted
        from hidden [B, 1, h] and logits [B, 1, Vd]."""

    def _catch_up(self, rows: TokenRows) -> tuple[Tensor, Tensor, Tensor]:
        """Feed the tokens committed since the last draft; returns the root's token [B, 1], hidden
        state [B, 1, h] and logits [B, 1, Vd].

        Shorter rows are padded at the end; those slots are overwritten or masked."""
        assert self.features is not None, "on_features comes first"
        cache, counts, width = self.cache, self.counts, self.features.shape[1]
        table = upload(
            [
                [*row[len(row) - n :], *[0] * (width - n), max(n, 1) - 1, row[-1]]
                for row, n in zip(rows, counts, strict=True)
            ],
            self.device,
        )
        tokens, last, root = table.split([width, 1, 1], 1)
        cache.reserve(width)
        causal = not any(cache.lengths)
        arguments = (self.head, cache, causal, tokens, self.features, last)
        hidden, logits = _catch_up(*arguments) if causal else cache.run(_catch_up, *arguments)
        cache.set_lengths([length + n for length, n in zip(cache.lengths, counts, strict=True)])
        return root, hidden, logits


def _catch_up(
    head: Head, cache: SlotCache, causal: bool, tokens: Tensor, features: Tensor, last: Tensor
) -> tuple[Tensor, Tensor]:
    """Feed `tokens` [B, N] with the target's features; hidden state [B, 1, h] and logits [B, 1, Vd]
    at last [B, 1]."""
    layout = NodeLayout.of(cache, tokens.shape[1], causal)
    window = head.model.window
    mask = None if layout.causal and window is None else layout.mask(cache.dtype, window)
    rotary = head.rotary(layout.positions, cache.slots)
    hidden = pick(head.step(tokens, head.model.fuse(features), rotary, mask, cache), last)
    return hidden, head.logits(hidden)


class DynamicProposer(HeadProposer):
    """Trees of EAGLE-2 and EAGLE-3; a chain is the tree with one beam."""

    def __init__(
        self,
        head: Head,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
        shape: TreeShape,
    ):
        """Raises ModelError if the head's vocabulary is smaller than the number of children per
        node."""
        if shape.top_k > head.draft_vocab:
            raise ModelError(
                f"{head.source}: its vocabulary of {head.draft_vocab} tokens is too small for "
                f"drafter.top_k={shape.top_k}; lower it"
            )
        super().__init__(head, settings, rows, slots, shape.depth * shape.top_k)
        self.shape = shape

    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor, u: Tensor) -> Draft:
        tree, draft_logits = self.cache.run(
            _grow_dynamic,
            self.head,
            self.cache,
            self.shape,
            self.settings.needs_q,
            root,
            hidden,
            logits,
        )
        if self.shape.top_k == 1:
            return Draft.of_chain(tree.tokens, logits=draft_logits, q=tree.q)
        return Draft.of_parents(
            tree.tokens,
            tree.parents,
            depth=tree.depth,
            logits=draft_logits,
            q=tree.q,
            max_depth=self.shape.depth + 1,
            width=self.shape.top_k,
        )


def _grow_dynamic(
    head: Head,
    cache: SlotCache,
    shape: TreeShape,
    needs_q: bool,
    root: Tensor,
    hidden: Tensor,
    logits: Tensor,
) -> tuple[SelectedTree, Tensor | None]:
    """See `HeadProposer.grow`; the logits [B, N, V] of the selected nodes, if they are needed."""
    growth, expanded = Growth(shape, root.device), [logits]
    levels = Levels(head, cache, [shape.top_k] * shape.depth)
    growth.add(*head.best(logits, shape.top_k))
    for _ in range(shape.depth):
        tokens, parent = growth.beams()
        hidden, logits = levels.feed(tokens, hidden, parent)
        growth.add(*head.best(logits, shape.top_k))
        expanded.append(logits)
    tree = growth.select(root)
    return tree, head.over_target(
        pick(torch.cat(expanded, 1), growth.sources(tree))
    ) if needs_q else None


class ShapedProposer(HeadProposer):
    """A tree of fixed shape; its nodes with children are fed to the head."""

    def __init__(
        self,
        head: Head,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
        tree: ShapedTree,
    ):
        """Raises ModelError if the head's vocabulary is smaller than the tree's largest rank
        requires."""
        if max(tree.shape.widths) > head.draft_vocab:
            raise ModelError(
                f"{head.source}: its vocabulary of {head.draft_vocab} tokens is too small for "
                f"drafter.tree={tree.shape.name}, which needs the best {max(tree.shape.widths)}; "
                "give a smaller tree"
            )
        super().__init__(head, settings, rows, slots, sum(tree.shape.inner[1:]))
        self.tree = tree
        tree.as_draft(self.device)  # made before the first cycle

    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor, u: Tensor) -> Draft:
        return self.tree.assemble(
            root,
            *self.cache.run(
                _grow_shaped,
                self.head,
                self.cache,
                self.tree,
                self.settings.needs_q,
                hidden,
                logits,
                u,
            ),
        )


def _grow_shaped(
    head: Head,
    cache: SlotCache,
    tree: ShapedTree,
    needs_q: bool,
    hidden: Tensor,
    logits: Tensor,
    u: Tensor,
) -> tuple[list[Siblings], list[Tensor] | None]:
    """See `HeadProposer.grow`: the nodes of each depth and, if they are needed, the logits [B, M,
    V] that they were taken from."""
    levels = Levels(head, cache, tree.shape.inner[1:])
    numbers = u.split(tree.sizes[1:], 1) if tree.sampled else [u] * tree.shape.max_depth
    drawn, contexts = [], []
    for depth, (level, uniforms) in enumerate(
        zip(tree.levels(logits.device), numbers, strict=True), start=1
    ):
        contexts.append(head.over_target(logits))
        drawn.append(tree.siblings(depth, contexts[-1], uniforms))
        if level.inner is not None:
            hidden, logits = levels.feed(
                drawn[-1].tokens.index_select(1, level.inner), hidden, level.parent[None]
            )
    return drawn, contexts if needs_q else None


READ = 12
"""Tokens that `check_head` lets a head read before the tree."""


@torch.no_grad()
def check_head(head: Head) -> None:
    """Compare the two branches of a small tree with the same tokens as plain sequences through the
    head's own modules, without a cache. Raises ModelError, one line, where they differ by more than
    rounding."""
    weight = next(head.model.parameters())
    size = head.model.config.hidden_size
    window = head.model.window
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(1, READ, size, generator=draw).to(weight)
    tokens = torch.randint(head.vocab_size, (1, READ + 4), generator=draw).to(weight.device)
    ids, first, second = tokens.split([READ, 2, 2], 1)
    cache = head.new_cache(1, READ + 8)
    cache.reserve(READ)
    layout = NodeLayout.of(cache, READ, True)
    mask = None if window is None else layout.mask(cache.dtype, window)
    rotary = head.rotary(layout.positions, cache.slots)
    last = head.step(ids, states, rotary, mask, cache)[:, -1:]
    cache.set_lengths([READ])
    cache.reserve(4)
    levels, crossed = Levels(head, cache, (2, 2)), torch.tensor([[1, 0]], device=weight.device)
    inner, _ = levels.feed(first, last, torch.zeros_like(crossed))
    outer, logits = levels.feed(second, inner, crossed)
    place = torch.arange(READ + 2, device=weight.device)
    seen = place[:, None] - place
    visible = ((seen >= 0) & (seen < (window or READ + 2)))[None, None]
    for node, parent in enumerate(crossed[0].tolist()):
        path = torch.cat([ids, first[:, parent : parent + 1], second[:, node : node + 1]], 1)
        fed = torch.cat([states, last, inner[:, parent : parent + 1]], 1)
        want = head.model(head.embed(path), fed, mask=visible)[0, READ:]
        states_off = off(torch.stack([inner[0, parent], outer[0, node]]), want).max()
        worst = float(
            torch.maximum(states_off, off(logits[0, node : node + 1], head.logits(want[1:])).max())
        )
        if not worst <= TOLERANCE[weight.dtype]:
            raise ModelError(
                f"{head.source}: a tree through this head is not what its tokens give in a row: "
                f"{worst:.1%} off; give engine.decoder=transformers, or another drafter"
            )
