"""Draft trees that grow where the draft is confident, built with tensor operations instead of a loop over nodes.

Source: Li et al. 2024, "EAGLE-2", sections 4.1 and 4.2; the order of nodes is that of the authors' code. A node's score
is the sum of the log-probabilities on its path. The root has k children; then, `depth` times, each of the k best nodes
of the last level gets k children. The best `total` - 1 of all candidates and the root form the tree."""

from __future__ import annotations

from dataclasses import dataclass

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
    def nodes(self) -> int:
        """Number of nodes: `total`, or fewer if the expansion yields fewer candidates."""
        return min(self.total, 1 + self.top_k + self.depth * self.top_k ** 2)


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected tree of N nodes in order of creation: parents first, siblings best first.

    tokens   [B, N-1] int64, all nodes but the root, in the drafter's vocabulary.
    parents  [B, N] int64, -1 for the root.
    logprob  [B, N-1] float32 draft log-probability of a node's token given its parent.
    source   [B, N] int64: index of the distribution from which the node was expanded, counted over all calls of
             `Growth.expand`; 0 for nodes that were not expanded.
    """

    tokens: Tensor
    parents: Tensor
    logprob: Tensor
    source: Tensor


class Growth:
    """One growing tree per row. Candidates are numbered in order of creation; the root is candidate -1."""

    def __init__(self, top_k: int):
        self.top_k = top_k
        self.beams: Tensor | None = None  # [B, M] candidates to expand next, None: the root
        self.score: Tensor | None = None  # [B, M] their scores
        self.count = 0
        self.parents: list[Tensor] = []  # per level: [B, M] candidates that were expanded
        self.tokens: list[Tensor] = []  # per level: [B, M * k], like the two below
        self.logprobs: list[Tensor] = []
        self.scores: list[Tensor] = []

    def expand(self, logprobs: Tensor) -> tuple[Tensor, Tensor]:
        """Expand the M beams by their top k tokens under `logprobs` [B, M, V] float32; M = 1, the root, at first.

        Returns the next beams, best first: tokens [B, k] and the index [B, k] of the beam each descends from."""
        rows, width, k = logprobs.shape[0], logprobs.shape[1], self.top_k
        top = logprobs.topk(k, dim=-1)
        tokens, logprob = top.indices.flatten(1), top.values.flatten(1)
        if self.beams is None or self.score is None:
            self.beams = torch.full((rows, 1), -1, device=logprobs.device)
            scores = logprob
        else:
            scores = (top.values + self.score[..., None]).flatten(1)
        for store, value in ((self.parents, self.beams), (self.tokens, tokens), (self.logprobs, logprob),
                             (self.scores, scores)):
            store.append(value)
        if width == 1:
            self.score, place = scores, torch.arange(k, device=logprobs.device).expand(rows, -1)
        else:
            self.score, place = scores.topk(k, dim=-1)
        self.beams = place + self.count
        self.count += width * k
        return tokens.gather(1, place), place // k

    def select(self, nodes: int) -> Selection:
        """Select the root and the best `nodes` - 1 candidates.

        A child never scores above its parent and ties go to the earlier candidate, so the selection contains the parent
        of each of its nodes."""
        scores = torch.cat(self.scores, 1)
        chosen = scores.sort(dim=1, descending=True, stable=True).indices[:, :nodes - 1].sort(dim=1).values
        parents = torch.cat(self.parents, 1)
        root = parents[:, :1]
        numbers = torch.cat([root, chosen], 1)
        behind_root = torch.searchsorted(numbers, parents.gather(1, chosen // self.top_k))
        expansion = torch.arange(parents.shape[1], device=root.device).expand_as(parents)
        sources = torch.zeros(len(root), self.count + 1, dtype=torch.int64, device=root.device)
        sources.scatter_(1, parents + 1, expansion)
        return Selection(torch.cat(self.tokens, 1).gather(1, chosen), torch.cat([root, behind_root], 1),
                         torch.cat(self.logprobs, 1).gather(1, chosen), sources.gather(1, numbers + 1))
