"""Drafting with an EAGLE head: feed it the target's features, then grow a tree from the head's own output."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from methods.drafters.base import DraftSettings, Proposer
from methods.engine.cache import SlotCache
from methods.engine.layout import Layout, additive
from methods.engine.source import ModelError
from methods.engine.upload import upload
from methods.heads.head import Head
from methods.trees.draft import Draft
from methods.trees.dynamic import Growth, TreeShape
from methods.trees.static import StaticTree


class HeadProposer(Proposer):
    """Base of all EAGLE drafters.

    The head's cache holds one entry for each committed token but the first, computed from the target's features: entry
    t from the feature at t and token t+1. The entries of a tree follow them; the next cycle overwrites them."""

    def __init__(self, head: Head, settings: DraftSettings, rows: list[list[int]], slots: int, max_head_nodes: int):
        """`max_head_nodes`: maximum number of tree nodes fed to the head per cycle."""
        self.head, self.settings = head, settings
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
            self.features = features.gather(1, index[..., None].expand(-1, -1, features.shape[-1]))

    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        root = upload([row[-1:] for row in rows], self.device)
        return self.grow(root, *self._catch_up(rows))

    @abstractmethod
    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor) -> Draft:
        """Grow a tree from `root` [B, 1]; its children are drafted from hidden [B, 1, h] and logits [B, 1, Vd]."""

    def _catch_up(self, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Feed the tokens committed since the last draft; returns hidden state [B, 1, h] and logits [B, 1, Vd] at the
        root.

        Shorter rows are padded at the end; those slots are overwritten or masked."""
        assert self.features is not None, "on_features comes first"
        cache, counts, width = self.cache, self.counts, self.features.shape[1]
        tokens = [row[len(row) - n:] + [0] * (width - n) for row, n in zip(rows, counts, strict=True)]
        last = upload([[max(n, 1) - 1] for n in counts], self.device)
        cache.reserve(width)
        causal = not any(cache.lengths)
        arguments = (self.head, cache, causal, upload(tokens, self.device), self.features, last)
        out = _catch_up(*arguments) if causal else cache.run(_catch_up, *arguments)
        cache.lengths = [length + n for length, n in zip(cache.lengths, counts, strict=True)]
        return out

    def to_target(self, tokens: Tensor) -> Tensor:
        """Draft ids -> target ids."""
        return tokens if self.head.to_target is None else self.head.to_target[tokens]

    def over_target(self, logits: Tensor) -> Tensor:
        """Logits [B, N, Vd] -> [B, N, V] over the target's vocabulary; -inf for tokens that cannot be drafted."""
        if self.head.to_target is None:
            return logits
        full = torch.full((*logits.shape[:2], self.head.vocab_size), -torch.inf, device=logits.device)
        return full.index_copy_(2, self.head.to_target, logits)


def _catch_up(head: Head, cache: SlotCache, causal: bool, tokens: Tensor, features: Tensor,
              last: Tensor) -> tuple[Tensor, Tensor]:
    """Feed `tokens` [B, N] with the target's features; hidden state [B, 1, h] and logits [B, 1, Vd] at last [B, 1]."""
    layout = Layout.of(cache, tokens.shape[1], causal)
    mask = None if layout.causal else layout.mask(cache.dtype)
    hidden = head.step(tokens, head.model.fuse(features), layout.positions, mask, cache)
    hidden = hidden.gather(1, last[..., None].expand(-1, -1, hidden.shape[-1]))
    return hidden, head.logits(hidden)


def _feed(head: Head, cache: SlotCache, offset: int, level: int, tokens: Tensor, hidden: Tensor, parent: Tensor | None,
          blocked: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """One level of a tree, `offset` nodes and `level` levels behind the committed tokens: its hidden states, its logits
    and what its nodes do not see."""
    rows, width = tokens.shape
    places = cache.begin(width, offset)
    if blocked is None or parent is None:
        above = (cache.slot_ids[:cache.visible] >= cache.starts[:, None])[:, None].repeat(1, width, 1)
    else:
        above = blocked.gather(1, parent[..., None].expand(rows, -1, cache.visible))
    blocked = above.scatter(2, places[..., None], False)
    positions = (cache.starts[:, None] + level).expand(-1, width)
    hidden = head.step(tokens, hidden, positions, additive(blocked, cache.dtype)[:, None], cache)
    return hidden, head.logits(hidden), blocked


class Levels:
    """Feeds a tree to the head level by level, after a row's committed tokens; nothing is committed.

    A node attends to the committed tokens, its ancestors and itself; all nodes of a level share one position."""

    def __init__(self, proposer: HeadProposer, max_head_nodes: int):
        self.head, self.cache, self.room = proposer.head, proposer.cache, max_head_nodes
        self.offset = self.level = 0
        self.blocked: Tensor | None = None  # [B, M, L] bool: what the nodes of the last level do not see

    def feed(self, tokens: Tensor, hidden: Tensor, parent: Tensor | None) -> tuple[Tensor, Tensor]:
        """tokens [B, M] of the target's vocabulary, hidden [B, M, h] of their parents; parent [B or 1, M]: each node's
        parent as an index into the level fed before, None under the root -> hidden [B, M, h], logits [B, M, Vd]."""
        self.cache.reserve(tokens.shape[1], self.offset, self.room)
        hidden, logits, self.blocked = self.cache.run(
            _feed, self.head, self.cache, self.offset, self.level, tokens, hidden, parent, self.blocked)
        self.offset += tokens.shape[1]
        self.level += 1
        return hidden, logits


class DynamicProposer(HeadProposer):
    """Trees of EAGLE-2 and EAGLE-3; a chain is the tree with one beam."""

    def __init__(self, head: Head, settings: DraftSettings, rows: list[list[int]], slots: int, shape: TreeShape):
        """Raises ModelError if the head's vocabulary is smaller than the number of children per node."""
        if shape.top_k > head.draft_vocab:
            raise ModelError(f"{head.source}: its vocabulary of {head.draft_vocab} tokens is too small for "
                             f"drafter.top_k={shape.top_k}; lower it")
        super().__init__(head, settings, rows, slots, shape.depth * shape.top_k)
        self.shape = shape

    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor) -> Draft:
        shape, growth, expanded = self.shape, Growth(self.shape.top_k), [logits]
        levels = Levels(self, shape.depth * shape.top_k)
        tokens, parent = growth.expand(logits.log_softmax(-1))
        for level in range(shape.depth):
            stem = hidden.gather(1, parent[..., None].expand(-1, -1, hidden.shape[-1]))
            hidden, logits = levels.feed(self.to_target(tokens), stem, parent if level else None)
            tokens, parent = growth.expand(logits.log_softmax(-1))
            expanded.append(logits)
        tree = growth.select(shape.nodes)
        tokens = torch.cat([root, self.to_target(tree.tokens)], 1)
        q = torch.cat([torch.ones_like(tree.logprob[:, :1]), tree.logprob.exp()], 1)
        draft_logits = self._over_nodes(torch.cat(expanded, 1), tree.source) if self.settings.needs_q else None
        if shape.top_k == 1:
            return Draft.of_chain(tokens, logits=draft_logits, q=q)
        return Draft.of_parents(tokens, tree.parents, logits=draft_logits, q=q, max_depth=shape.depth + 1,
                                width=shape.top_k)

    def _over_nodes(self, logits: Tensor, source: Tensor) -> Tensor:
        """Logits [B, E, Vd] of the expanded nodes -> [B, N, V] of all nodes."""
        return self.over_target(logits.gather(1, source[..., None].expand(-1, -1, logits.shape[-1])))


class StaticProposer(HeadProposer):
    """A tree of static shape; only its inner nodes are fed to the head."""

    def __init__(self, head: Head, settings: DraftSettings, rows: list[list[int]], slots: int, tree: StaticTree):
        """Raises ModelError if the head's vocabulary is smaller than the tree's largest rank requires."""
        if max(tree.widths) > head.draft_vocab:
            raise ModelError(f"{head.source}: its vocabulary of {head.draft_vocab} tokens is too small for "
                             f"drafter.tree={tree.name}, which needs the best {max(tree.widths)}; give a smaller tree")
        inner = sorted(set(tree.parents) - {-1})
        super().__init__(head, settings, rows, slots, len(inner) - 1)
        self.tree, self.max_head_nodes = tree, len(inner) - 1
        place = {node: i for depth in range(tree.max_depth)
                 for i, node in enumerate(n for n in inner if tree.depth[n] == depth)}
        self.levels = [_StaticLevel(tree, depth, place, self.device) for depth in range(1, tree.max_depth + 1)]
        row = {node: i for i, node in enumerate(inner)}
        self.source = torch.tensor([row.get(node, 0) for node in range(tree.nodes)], device=self.device)
        parents = torch.tensor([tree.parents], device=self.device)
        self.shape = Draft.of_parents(torch.zeros_like(parents), parents, max_depth=tree.max_depth)

    def grow(self, root: Tensor, hidden: Tensor, logits: Tensor) -> Draft:
        levels, expanded, tokens, logprobs = Levels(self, self.max_head_nodes), [], [root], []
        for level in self.levels:
            expanded.append(logits)
            top = logits.log_softmax(-1).topk(level.width, dim=-1)
            best, logprob = (x.flatten(1)[:, level.choice] for x in (self.to_target(top.indices), top.values))
            tokens.append(best)
            logprobs.append(logprob)
            if level.inner is not None:
                hidden, logits = levels.feed(best[:, level.inner], hidden[:, level.parent],
                                             level.parent[None] if levels.level else None)
        shape = self.shape
        draft_logits = self.over_target(torch.cat(expanded, 1)[:, self.source]) if self.settings.needs_q else None
        q = torch.cat([torch.zeros_like(logprobs[0][:, :1]), *logprobs], 1).exp()
        drafted = torch.cat(tokens, 1)
        return Draft(drafted, shape.parents, shape.ancestors, shape.depth, torch.ones_like(drafted, dtype=torch.bool),
                     logits=draft_logits, q=q, width=max(self.tree.widths), levels=shape.levels)


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
