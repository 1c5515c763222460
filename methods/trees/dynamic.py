"""Draft trees that grow where the draft is confident, built with tensor operations instead of a
loop over nodes.

Source: Li et al. 2024, "EAGLE-2", sections 4.1 and 4.2; the order of nodes is that of the authors'
code. A node's score is the sum of the log-probabilities on its path. The root has k children; then,
`depth` times, each of the k best nodes of the last level gets k children. The best `total` - 1 of
all candidates and the root form the tree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Size of a dynamic tree.

    total  nodes, root included.
    depth  rounds of expansion after the root's; a path has up to depth + 1 draft tokens.
    top_k  children per node, and nodes expanded per round.
    """

    total: int
    depth: int
    top_k: int

    @property
    def candidates(self) -> int:
        """Number of nodes that are drafted, without the root."""
        return self.top_k + self.depth * self.top_k**2

    @property
    def nodes(self) -> int:
        """Number of nodes: `total`, or fewer if the expansion yields fewer candidates."""
        return min(self.total, 1 + self.candidates)


@dataclass(frozen=True, slots=True)
class SelectedTree:
    """The selected tree of N nodes in order of creation: parents first, siblings best first.

    tokens   [B, N] int64, the root's first.
    parents  [B, N] int64, -1 for the root.
    depth    [B, N] int64, 0 for the root.
    q        [B, N] float32 draft probability of a node's token given its parent; the root's is 1.
    entries  [B, N] int64 the nodes' numbers in the growth.
    """

    tokens: Tensor
    parents: Tensor
    depth: Tensor
    q: Tensor
    entries: Tensor


@dataclass(frozen=True, slots=True)
class _Tables:
    """What all trees of one shape share. Entries are the root, 0, and the candidates in order of
    creation.

    maker     [1, E] which expansion made an entry, counted from 1; 0 for the root.
    depth     [1, E] the depth of an entry.
    expanded  [1, k + 2] the entries that the first expansions expand: the root, then its k
              children. -1 before them.
    before    [1, X] 0 for those of `expanded`; then, for the expansions whose entries are chosen by
              their places in a level, the number of entries before that level.
    zeros     [1, k] int64.
    certain, best  [1, 1] float32: the root's log-probability, 0, and score, inf: it is always
                   selected.
    """

    maker: Tensor
    depth: Tensor
    expanded: Tensor
    before: Tensor
    zeros: Tensor
    certain: Tensor
    best: Tensor


@cache
def _tables(depth: int, k: int, device: torch.device) -> _Tables:
    """Kept for good: a recorded growth reads them where they are."""
    sizes = [k] + [k**2] * depth
    maker = torch.arange(sum(sizes)) // k + 1
    levels = torch.arange(depth + 1).repeat_interleave(torch.tensor(sizes)) + 1
    root = torch.zeros(1, dtype=torch.int64)
    before = [0] * (k + 2) + [1 + sum(sizes[:level]) for level in range(1, depth) for _ in range(k)]
    tables = (
        torch.cat([root, maker]),
        torch.cat([root, levels]),
        torch.arange(-1, k + 1),
        torch.tensor(before),
        torch.zeros(k, dtype=torch.int64),
        torch.zeros(1),
        torch.tensor([torch.inf]),
    )
    return _Tables(*(table[None].to(device) for table in tables))


class Growth:
    """One growing tree per row; the k best children of the root, and of the k best nodes of each
    level, are candidates.

    Call `add`, then `beams` and `add` once for each level more, then `select`."""

    def __init__(self, shape: TreeShape, device: torch.device):
        self.shape = shape
        self.tables = _tables(shape.depth, shape.top_k, device)
        self.beam_scores: Tensor | None = None  # [B, k], None: the root
        # per level but the first: [B, k] the beams' places in the level
        self.places: list[Tensor] = []
        self.tokens: list[Tensor] = []  # per level: [B, M * k], like the two below
        self.logprobs: list[Tensor] = []
        self.scores: list[Tensor] = []

    def add(self, tokens: Tensor, logprobs: Tensor) -> None:
        """The k best children of each of the M beams, best first: their tokens [B, M, k] int64 and
        log-probabilities [B, M, k] float32. M = 1, the root, at first."""
        scores = logprobs if self.beam_scores is None else logprobs + self.beam_scores[..., None]
        for store, value in (
            (self.tokens, tokens),
            (self.logprobs, logprobs),
            (self.scores, scores),
        ):
            store.append(value.flatten(1))

    def beams(self) -> tuple[Tensor, Tensor]:
        """The k best candidates of the last level, best first, whose children are next: their
        tokens [B, k] and the index [B or 1, k] of the beam that each descends from."""
        tokens, scores, k = self.tokens[-1], self.scores[-1], self.shape.top_k
        if self.beam_scores is None:
            self.beam_scores = scores
            return tokens, self.tables.zeros
        self.beam_scores, place = scores.topk(k, dim=-1)
        self.places.append(place)
        return tokens.gather(1, place), place // k

    def select(self, root: Tensor) -> SelectedTree:
        """Select the root [B, 1] and the best candidates.

        A child never scores above its parent and ties go to the earlier candidate, so the selection
        contains the parent of each of its nodes."""
        tables, rows = self.tables, len(root)
        scores = torch.cat([tables.best.expand(rows, -1), *self.scores], 1)
        best = scores.sort(dim=1, descending=True, stable=True).indices[:, : self.shape.nodes]
        entries = best.sort(dim=1).values
        above = self._expanded(rows).gather(1, tables.maker.expand(rows, -1).gather(1, entries))
        return SelectedTree(
            torch.cat([root, *self.tokens], 1).gather(1, entries),
            torch.searchsorted(entries, above, right=True).sub_(1),
            tables.depth.expand(rows, -1).gather(1, entries),
            torch.cat([tables.certain.expand(rows, -1), *self.logprobs], 1)
            .gather(1, entries)
            .exp(),
            entries,
        )

    def sources(self, selection: SelectedTree) -> Tensor:
        """[B, N] int64: for each node the expansion that expanded it, counted from the root's, 0; 0
        for nodes that were not expanded."""
        rows, expansions = len(selection.entries), 1 + self.shape.depth * self.shape.top_k
        number = torch.arange(expansions, device=selection.entries.device).expand(rows, -1)
        made = torch.zeros(rows, 1 + self.shape.candidates, dtype=torch.int64, device=number.device)
        made.scatter_(1, self._expanded(rows)[:, 1 : 1 + expansions], number)
        return made.gather(1, selection.entries)

    def _expanded(self, rows: int) -> Tensor:
        """[B, X] the entry that each expansion expanded, -1 before them."""
        return (
            torch.cat([self.tables.expanded.expand(rows, -1), *self.places], 1) + self.tables.before
        )
