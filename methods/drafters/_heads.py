"""Drafting with an EAGLE head: feed it the target's features, then grow a tree or chain from its own output."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from methods.drafters.base import DraftSettings, Proposer
from methods.drafters.model import draft_chain
from methods.engine.attention import Layout, additive
from methods.engine.cache import SlotCache
from methods.engine.device import upload
from methods.engine.probe import TOLERANCE, off
from methods.engine.source import ModelError
from methods.heads.head import Head
from methods.trees.draft import Draft
from methods.trees.dynamic import Growth, Selection, TreeShape
from methods.trees.sampled import SampledTree, Siblings
from methods.trees.static import StaticTree


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
    """Feeds levels of `sizes` nodes to the head, behind each row's committed tokens; nothing is committed.

    A node attends to the committed tokens, its ancestors and itself; all nodes of a level share one position. Make it
    after `SlotCache.reserve` for the nodes of all levels."""

    def __init__(self, head: Head, cache: SlotCache, sizes: Sequence[int]):
        self.head, self.cache = head, cache
        starts = cache.starts[:, None]
        positions = starts + _level_of(tuple(sizes), cache.device)
        self.places = zip(cache.places(sum(sizes)).split(sizes, 1), positions.split(sizes, 1), strict=True)
        slots = cache.slot_ids[:cache.visible]
        self.mask = additive(slots >= starts, cache.dtype)[:, None]
        self.committed = slots < starts

    def feed(self, tokens: Tensor, hidden: Tensor, parent: Tensor) -> tuple[Tensor, Tensor]:
        """tokens [B, M] of the target's vocabulary, hidden [B, P, h] of the level before, parent [B or 1, M]: each
        node's parent in that level, 0 under the root -> hidden [B, M, h], logits [B, M, Vd]."""
        slots, positions = next(self.places)
        self.cache.begin(slots)
        self.mask = mask = pick(self.mask, parent).scatter_(2, slots[..., None], 0.0)
        if self.head.model.window is not None:  # a committed token's slot is its position
            far = self.cache.slot_ids[:self.cache.visible] <= positions[:, :1] - self.head.model.window
            mask = torch.minimum(mask, additive(far & self.committed, self.cache.dtype)[:, None])
        hidden = self.head.step(tokens, pick(hidden, parent), positions, mask[:, None], self.cache)
        return hidden, self.head.logits(hidden)


class HeadProposer(Proposer):
    """Base of all EAGLE drafters.

    The head's cache holds one entry for each committed token but the first, computed from the target's features: entry
    t from the feature at t and token t+1. The entries of a tree follow them; the next cycle overwrites them."""

    def __init__(self, head: Head, settings: DraftSettings, rows: list[list[int]], slots: int, max_head_nodes: int):
        """`max_head_nodes`: maximum number of tree nodes fed to the head per cycle."""
        if head.model.window is not None and head.model.window <= max_head_nodes:
            raise ModelError(f"{head.source}: its window of {head.model.window} tokens is no longer than the "
                             "draft; draft less, or give another head")
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

    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        root, hidden, logits = self._catch_up(rows)
        self.cache.reserve(self.max_head_nodes)
        return self.grow(root, hidden, logits, u)

    @abstractmethod
    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor, u: Tensor) -> Draft:
        """Grow a tree from `root` [B, 1], with the uniforms of `propose`; its children are drafted from hidden
        [B, 1, h] and logits [B, 1, Vd]."""

    def _catch_up(self, rows: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
        """Feed the tokens committed since the last draft; returns the root's token [B, 1], hidden state [B, 1, h] and
        logits [B, 1, Vd].

        Shorter rows are padded at the end; those slots are overwritten or masked."""
        assert self.features is not None, "on_features comes first"
        cache, counts, width = self.cache, self.counts, self.features.shape[1]
        table = upload([[*row[len(row) - n:], *[0] * (width - n), max(n, 1) - 1, row[-1]]
                        for row, n in zip(rows, counts, strict=True)], self.device)
        tokens, last, root = table.split([width, 1, 1], 1)
        cache.reserve(width)
        causal = not any(cache.lengths)
        arguments = (self.head, cache, causal, tokens, self.features, last)
        hidden, logits = _catch_up(*arguments) if causal else cache.run(_catch_up, *arguments)
        cache.lengths = [length + n for length, n in zip(cache.lengths, counts, strict=True)]
        return root, hidden, logits


def _catch_up(head: Head, cache: SlotCache, causal: bool, tokens: Tensor, features: Tensor,
              last: Tensor) -> tuple[Tensor, Tensor]:
    """Feed `tokens` [B, N] with the target's features; hidden state [B, 1, h] and logits [B, 1, Vd] at last [B, 1]."""
    layout = Layout.of(cache, tokens.shape[1], causal)
    window = head.model.window
    mask = None if layout.causal and window is None else layout.mask(cache.dtype, window)
    hidden = pick(head.step(tokens, head.model.fuse(features), layout.positions, mask, cache), last)
    return hidden, head.logits(hidden)


class DynamicProposer(HeadProposer):
    """Trees of EAGLE-2 and EAGLE-3; a chain is the tree with one beam."""

    def __init__(self, head: Head, settings: DraftSettings, rows: list[list[int]], slots: int, shape: TreeShape):
        """Raises ModelError if the head's vocabulary is smaller than the number of children per node."""
        if shape.top_k > head.draft_vocab:
            raise ModelError(f"{head.source}: its vocabulary of {head.draft_vocab} tokens is too small for "
                             f"drafter.top_k={shape.top_k}; lower it")
        super().__init__(head, settings, rows, slots, shape.depth * shape.top_k)
        self.shape = shape

    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor, u: Tensor) -> Draft:
        tree, draft_logits = self.cache.run(_grow_dynamic, self.head, self.cache, self.shape, self.settings.needs_q,
                                            root, hidden, logits)
        if self.shape.top_k == 1:
            return Draft.of_chain(tree.tokens, logits=draft_logits, q=tree.q)
        return Draft.of_parents(tree.tokens, tree.parents, depth=tree.depth, logits=draft_logits, q=tree.q,
                                max_depth=self.shape.depth + 1, width=self.shape.top_k)


def _grow_dynamic(head: Head, cache: SlotCache, shape: TreeShape, needs_q: bool, root: Tensor, hidden: Tensor,
                  logits: Tensor) -> tuple[Selection, Tensor | None]:
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
    return tree, head.over_target(pick(torch.cat(expanded, 1), growth.sources(tree))) if needs_q else None


class StaticProposer(HeadProposer):
    """A tree of static shape; only its inner nodes are fed to the head."""

    def __init__(self, head: Head, settings: DraftSettings, rows: list[list[int]], slots: int, tree: StaticTree):
        """Raises ModelError if the head's vocabulary is smaller than the tree's largest rank requires."""
        if max(tree.widths) > head.draft_vocab:
            raise ModelError(f"{head.source}: its vocabulary of {head.draft_vocab} tokens is too small for "
                             f"drafter.tree={tree.name}, which needs the best {max(tree.widths)}; give a smaller tree")
        super().__init__(head, settings, rows, slots, len(set(tree.parents)) - 2)
        self.tree = tree
        _static_tables(tree, self.device)  # made before the first cycle

    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor, u: Tensor) -> Draft:
        tokens, q, draft_logits = self.cache.run(_grow_static, self.head, self.cache, self.tree, self.settings.needs_q,
                                                 root, hidden, logits)
        shape = _static_tables(self.tree, self.device).shape
        return Draft(tokens, shape.parents, shape.ancestors, shape.depth, torch.ones_like(tokens, dtype=torch.bool),
                     logits=draft_logits, q=q, width=max(self.tree.widths), levels=shape.levels)


def _grow_static(head: Head, cache: SlotCache, tree: StaticTree, needs_q: bool, root: Tensor, hidden: Tensor,
                 logits: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """See `HeadProposer.grow`: tokens, q and the logits, if they are needed, of the nodes."""
    tables = _static_tables(tree, root.device)
    levels = Levels(head, cache, tables.fed)
    expanded, tokens, logprobs = [], [root], [torch.zeros_like(root, dtype=torch.float32)]
    for level in tables.levels:
        expanded.append(logits)
        best, logprob = (x.flatten(1).index_select(1, level.choice) for x in head.best(logits, level.width))
        tokens.append(best)
        logprobs.append(logprob)
        if level.inner is not None:
            hidden, logits = levels.feed(best.index_select(1, level.inner), hidden, level.parent[None])
    draft_logits = head.over_target(torch.cat(expanded, 1)[:, tables.source]) if needs_q else None
    return torch.cat(tokens, 1), torch.cat(logprobs, 1).exp(), draft_logits


@dataclass(frozen=True, slots=True)
class _StaticTables:
    """A static tree as indices.

    levels  what to do at each depth.
    fed     number of nodes that each fed level has.
    source  [N] index of the distribution from which a node was expanded; 0 for leaves.
    shape   a draft of this shape whose tokens mean nothing.
    """

    levels: list[_StaticLevel]
    fed: list[int]
    source: Tensor
    shape: Draft


class _StaticLevel:
    """One depth of a static tree as indices.

    width   number of top tokens needed of each distribution.
    choice  [n] indices into the flat (parent, rank) table of the level above.
    inner   [m] which of the n nodes have children; None if none has.
    parent  [m] their parents among the nodes fed.
    """

    def __init__(self, tree: StaticTree, depth: int, place: dict[int, int], device: torch.device):
        nodes = [n for n in range(tree.nodes) if tree.depth[n] == depth]
        self.width = tree.widths[depth - 1]
        self.choice = torch.tensor([place[tree.parents[n]] * self.width + tree.ranks[n] for n in nodes], device=device)
        inner = [i for i, n in enumerate(nodes) if n in place]
        self.inner = torch.tensor(inner, device=device) if inner else None
        self.parent = torch.tensor([place[tree.parents[nodes[i]]] for i in inner], device=device)


@cache
def _static_tables(tree: StaticTree, device: torch.device) -> _StaticTables:
    """Kept for good: a recorded growth reads them where they are."""
    inner = sorted(set(tree.parents) - {-1})
    place = {node: i for depth in range(tree.max_depth)
             for i, node in enumerate(n for n in inner if tree.depth[n] == depth)}
    levels = [_StaticLevel(tree, depth, place, device) for depth in range(1, tree.max_depth + 1)]
    row = {node: i for i, node in enumerate(inner)}
    parents = torch.tensor([tree.parents], device=device)
    return _StaticTables(levels, [len(level.parent) for level in levels if level.inner is not None],
                         torch.tensor([row.get(node, 0) for node in range(tree.nodes)], device=device),
                         Draft.of_parents(torch.zeros_like(parents), parents, max_depth=tree.max_depth))


class SampledProposer(HeadProposer):
    """The nodes of all levels but the last are fed to the head."""

    def __init__(self, head: Head, settings: DraftSettings, rows: list[list[int]], slots: int, tree: SampledTree):
        super().__init__(head, settings, rows, slots, sum(tree.sizes[1:-1]))
        self.tree = tree
        tree.as_draft(self.device)  # made before the first cycle

    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor, u: Tensor) -> Draft:
        return self.tree.assemble(root, *self.cache.run(_grow_sampled, self.head, self.cache, self.tree,
                                                        self.settings.needs_q, hidden, logits, u))


def _grow_sampled(head: Head, cache: SlotCache, tree: SampledTree, needs_q: bool, hidden: Tensor, logits: Tensor,
          u: Tensor) -> tuple[list[Siblings], list[Tensor] | None]:
    """See `HeadProposer.grow`: the siblings drawn at each depth and, if they are needed, the logits [B, M, V] that they
    were drawn from."""
    sizes = tree.sizes
    levels = Levels(head, cache, sizes[1:-1])
    drawn, contexts = [], []
    first = 0
    for level, size in enumerate(sizes[1:], start=1):
        parents = sizes[level - 1]
        contexts.append(head.over_target(logits))
        drawn.append(tree.siblings(contexts[-1], u[:, first:first + size].view(-1, parents, size // parents)))
        first += size
        if level < len(sizes) - 1:
            parent = torch.arange(parents, device=u.device).repeat_interleave(size // parents)
            hidden, logits = levels.feed(drawn[-1].tokens.flatten(1), hidden, parent[None])
    return drawn, contexts if needs_q else None


class HeadChain(HeadProposer):
    """As `draft_chain`. Each token is a forward of the head by itself, not a part of a recorded graph: whether there is
    a next one is known on the host alone."""

    def __init__(self, head: Head, settings: DraftSettings, rows: list[list[int]], slots: int, sampled: bool,
                 stop_below: float):
        super().__init__(head, settings, rows, slots, settings.length - 1)
        self.sampled, self.stop_below = sampled, stop_below

    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor, u: Tensor) -> Draft:
        levels = Levels(self.head, self.cache, [1] * (self.settings.length - 1))
        parent = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        state = hidden

        def read(token: Tensor | None) -> Tensor:
            nonlocal state
            found = logits
            if token is not None:
                state, found = levels.feed(token[:, None], state, parent)
            return self.head.over_target(found)[:, 0]

        draft, contexts, _ = draft_chain(root[:, 0], u, read, self.settings, self.sampled, self.stop_below)
        if self.settings.needs_q:
            draft.logits = torch.cat([contexts, torch.zeros_like(contexts[:, :1])], 1)
        return draft


READ = 12
"""Tokens that `check_head` lets a head read before the tree."""


@torch.no_grad()
def check_head(head: Head) -> None:
    """Compare the two branches of a small tree with the same tokens as plain sequences through the head's own modules,
    without a cache. Raises ModelError, one line, where they differ by more than rounding."""
    weight, size, window = next(head.model.parameters()), head.model.config.hidden_size, head.model.window
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(1, READ, size, generator=draw).to(weight)
    tokens = torch.randint(head.vocab_size, (1, READ + 4), generator=draw).to(weight.device)
    ids, first, second = tokens.split([READ, 2, 2], 1)
    cache = head.new_cache(1, READ + 8)
    cache.reserve(READ)
    layout = Layout.of(cache, READ, True)
    mask = None if window is None else layout.mask(cache.dtype, window)
    last = head.step(ids, states, layout.positions, mask, cache)[:, -1:]
    cache.lengths = [READ]
    cache.reserve(4)
    levels, crossed = Levels(head, cache, (2, 2)), torch.tensor([[1, 0]], device=weight.device)
    inner, _ = levels.feed(first, last, torch.zeros_like(crossed))
    outer, logits = levels.feed(second, inner, crossed)
    place = torch.arange(READ + 2, device=weight.device)
    seen = place[:, None] - place
    visible = ((seen >= 0) & (seen < (window or READ + 2)))[None, None]
    for node, parent in enumerate(crossed[0].tolist()):
        path = torch.cat([ids, first[:, parent:parent + 1], second[:, node:node + 1]], 1)
        fed = torch.cat([states, last, inner[:, parent:parent + 1]], 1)
        want = head.model(head.embed(path), fed, mask=visible)[0, READ:]
        states_off = off(torch.stack([inner[0, parent], outer[0, node]]), want).max()
        worst = float(torch.maximum(states_off, off(logits[0, node:node + 1], head.logits(want[1:])).max()))
        if not worst <= TOLERANCE[weight.dtype]:
            raise ModelError(f"{head.source}: a tree through this head is not what its tokens give in a row: "
                             f"{worst:.1%} off; give engine.decoder=transformers, or another drafter")
