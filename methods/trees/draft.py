"""Draft trees as tensors. A chain is a tree whose nodes have one child each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=256)
def _chain(nodes: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    parents = torch.arange(-1, nodes - 1, device=device)
    ancestors = torch.ones(nodes, nodes, dtype=torch.bool, device=device).tril()
    depth = torch.arange(nodes, device=device)
    return parents[None], ancestors[None], depth[None]


@dataclass(slots=True)
class Draft:
    """What a drafter proposes in one cycle, for a batch of B rows with N nodes each.

    tokens     [B, N] int64    node 0 is the root: the last committed token, not yet in the cache.
    parents    [B, N] int64    -1 for the root; a parent's index is smaller than its children's.
                               Siblings are in draft order, best first.
    ancestors  [B, N, N] bool  ancestors[b, i, j]: j is i or an ancestor of i (the attention mask
               among nodes).
    depth      [B, N] int64    root 0.
    valid      [B, N] bool     padding nodes of a short draft are False and are never accepted.
    sampled    the candidates were drawn from the draft's processed distribution (otherwise
               deterministic).
    replacement  sampled siblings are independent draws; otherwise each is drawn without the tokens
                 of those before it.
    logits     [B, N, V] float32 raw draft logits in the context of node i, i.e. of i's children;
               rows of nodes that the drafter did not expand are unspecified. None for drafters
               without a distribution.
    q          [B, N] float32  draft probability of the node's own token given its parent (root: 1).
                               For sampled candidates under the processed draft distribution,
                               otherwise under the raw softmax. None as above.
    hidden     [B, N, H] the draft model's final-norm hidden states behind each node's own token, or
               None.
    chain      every node has one child: accepted nodes are a prefix, nothing has to be compacted.
    width      the largest number of siblings, where the drafter knows it without asking the device.
    levels     the largest number of nodes on a path, root included, likewise.
    sizes      the number of nodes at each depth, the root's 1 first, if all rows share it and nodes
               are ordered by depth; None where the drafter does not know it.
    extra_nodes  number of trailing nodes that the target processes but that are not candidates:
                 rules do not see them, and the target's argmax after each goes to
                 `Proposer.on_extra_outputs`.

    `parents`, `ancestors`, `depth` may have a leading dimension of 1 when all rows share the shape.
    """

    tokens: Tensor
    parents: Tensor
    ancestors: Tensor
    depth: Tensor
    valid: Tensor
    sampled: bool = False
    logits: Tensor | None = None
    q: Tensor | None = None
    hidden: Tensor | None = None
    chain: bool = False
    width: int | None = None
    levels: int | None = None
    extra_nodes: int = 0
    replacement: bool = True
    sizes: tuple[int, ...] | None = None

    @property
    def nodes(self) -> int:
        return self.tokens.shape[1]

    def candidates(self) -> Draft:
        """The draft without its extra nodes, as the rules see it."""
        n = self.nodes - self.extra_nodes

        def without_extra(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[:, :n]

        return replace(
            self,
            tokens=self.tokens[:, :n],
            parents=self.parents[:, :n],
            depth=self.depth[:, :n],
            ancestors=self.ancestors[:, :n, :n],
            valid=self.valid[:, :n],
            extra_nodes=0,
            sizes=None,
            logits=without_extra(self.logits),
            q=without_extra(self.q),
            hidden=without_extra(self.hidden),
        )

    @classmethod
    def of_chain(
        cls,
        tokens: Tensor,
        *,
        valid: Tensor | None = None,
        sampled: bool = False,
        logits: Tensor | None = None,
        q: Tensor | None = None,
    ) -> Draft:
        """Build a chain from `tokens` [B, K+1], root first."""
        parents, ancestors, depth = _chain(tokens.shape[1], tokens.device)
        if valid is None:
            valid = torch.ones_like(tokens, dtype=torch.bool)
        return cls(
            tokens, parents, ancestors, depth, valid, sampled, logits, q, chain=True, width=1
        )

    @classmethod
    def of_parents(
        cls,
        tokens: Tensor,
        parents: Tensor,
        *,
        valid: Tensor | None = None,
        sampled: bool = False,
        logits: Tensor | None = None,
        q: Tensor | None = None,
        depth: Tensor | None = None,
        max_depth: int | None = None,
        width: int | None = None,
    ) -> Draft:
        """Build a tree from `tokens` and `parents`, both [B, N], and where it is known each node's
        `depth`; `max_depth` bounds the pointer-doubling rounds, `width` the rounds over
        siblings."""
        nodes = parents.shape[1]
        rounds = max((max_depth or nodes) - 1, 1).bit_length()
        up = parents[..., None] == torch.arange(nodes, device=tokens.device)
        reach = torch.eye(nodes, device=tokens.device) + up
        for _ in range(rounds):
            reach = reach @ reach  # counts of paths of length <= 2^r after r squarings
            if rounds > 6:  # counts reach 2^(2^r)
                reach = reach.clamp(max=1.0)
        ancestors = reach > 0
        if valid is None:
            valid = torch.ones_like(tokens, dtype=torch.bool)
        if depth is None:
            depth = ancestors.sum(-1) - 1
        return cls(
            tokens,
            parents,
            ancestors,
            depth,
            valid,
            sampled,
            logits,
            q,
            width=width,
            levels=None if max_depth is None else max_depth + 1,
        )
