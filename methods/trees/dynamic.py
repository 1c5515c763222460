"""Draft trees that grow where the draft is confident, as tensors and without a loop over nodes.

Source: Li et al. 2024, "EAGLE-2", sections 4.1 and 4.2; the order of nodes is that of the authors' code. A node's score
is the sum of the log-probabilities on its path. The root has k children; then, `depth` times, each of the k best nodes
of the last level gets k children. Of all nodes that arose the best `total` - 1 form the tree, with the root."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TreeShape:
    """total: nodes, root included. depth: rounds of expansion after the root's, so paths have up to depth + 1 draft
    tokens. top_k: children a node, and nodes that are expanded in a round."""

    total: int
    depth: int
    top_k: int

    @property
    def nodes(self) -> int:
        """Nodes of the tree, fewer than `total` where not so many arise."""
        return min(self.total, 1 + self.top_k + self.depth * self.top_k ** 2)


@dataclass(frozen=True, slots=True)
class Selection:
    """The tree that was chosen, N nodes, in the order in which they arose: parents first, siblings best first.

    tokens   [B, N-1] int64 of the nodes behind the root, in the drafter's vocabulary.
    parents  [B, N] int64, -1 for the root.
    logprob  [B, N-1] float32 draft log-probability of a node's token given its parent.
    source   [B, N] int64: which of the distributions given to `Growth.expand` was the node's, counted over all calls;
             0 for nodes that were not expanded.
    """

    tokens: Tensor
    parents: Tensor
    logprob: Tensor
    source: Tensor


class Growth:
    """One tree a row in the making. DraftCapabilities are numbered as they arise; the root is candidate -1."""

    def __init__(self, top_k: int):
        self.top_k = top_k
        self.beams: Tensor | None = None  # [B, M] candidate numbers of the nodes to be expanded, None: the root
        self.score: Tensor | None = None  # [B, M] their scores
        self.count = 0
        self.parents: list[Tensor] = []  # a level: [B, M] candidates whose children arose
        self.tokens: list[Tensor] = []  # a level: [B, M * k], as the two below
        self.logprobs: list[Tensor] = []
        self.scores: list[Tensor] = []

    def expand(self, logprobs: Tensor) -> tuple[Tensor, Tensor]:
        """Give the M beams their children from `logprobs` [B, M, V] float32 (M = 1, the root, at first).

        Returns the next beams, best first: tokens [B, k] and the index [B, k] of the beam each stems from."""
        rows, width, k = logprobs.shape[0], logprobs.shape[1], self.top_k
        top = logprobs.topk(k, dim=-1)
        tokens, own = top.indices.flatten(1), top.values.flatten(1)
        if self.beams is None or self.score is None:
            self.beams = torch.full((rows, 1), -1, device=logprobs.device)
            scores = own
        else:
            scores = (top.values + self.score[..., None]).flatten(1)
        for store, value in ((self.parents, self.beams), (self.tokens, tokens), (self.logprobs, own),
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
        """The best `nodes` - 1 candidates and the root.

        A child never scores above its parent, and of equal scores the earlier candidate is taken, so the choice is
        closed under parents."""
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
