"""Trees of a shape that is the same in every cycle, filled with the likeliest tokens, or with
siblings that are drawn from the draft's distribution, with or without replacement.

Source of drawn ones: SpecInfer (Miao et al. 2024), independent siblings; Jeon et al. 2024,
"Recursive Speculative Decoding", constant branching factors and siblings drawn without replacement.
Their shape is regular: at depth d each node has branching[d] children, and one behind the last of
the factors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import torch
from pydantic import AfterValidator, Field, PositiveInt
from torch import Tensor

from methods.sampling import Sampling, draw
from methods.trees import static
from methods.trees.draft import Draft

LARGEST_LEVEL = 1024


def _bounded(factors: list[int]) -> list[int]:
    if math.prod(factors) > LARGEST_LEVEL:
        raise ValueError(
            f"{math.prod(factors)} nodes at one depth; at most {LARGEST_LEVEL}: give fewer or "
            "smaller factors"
        )
    return factors


Branching = Annotated[list[PositiveInt], Field(max_length=32), AfterValidator(_bounded)]
"""Children of each node, from the root's depth on."""


@dataclass(frozen=True, slots=True)
class Level:
    """What fills one depth of a tree of fixed shape, as indices.

    choice  [n] of each of its nodes: in the flat table of the level above, (parent that has
            children, rank).
    inner   [m] which of the n nodes have children; None if none has.
    parent  [m] their parents among the nodes above that have children.
    """

    choice: Tensor
    inner: Tensor | None
    parent: Tensor


@cache
def _tables(shape: static.StaticTree, device: torch.device) -> tuple[Draft, list[Level], Tensor]:
    """A draft of this shape whose tokens mean nothing, its levels, and [N] the context from which
    each node's children are drafted, 0 for leaves. Kept for good: a recorded growth reads them
    where they are."""
    inner, levels = sorted(set(shape.parents) - {-1}), []
    at = {
        node: sum(shape.depth[other] == shape.depth[node] for other in inner[:i])
        for i, node in enumerate(inner)
    }
    for depth, width in enumerate(shape.widths, start=1):
        nodes = [n for n in range(shape.nodes) if shape.depth[n] == depth]
        choice = [at[shape.parents[n]] * width + shape.ranks[n] for n in nodes]
        fed = [i for i, n in enumerate(nodes) if n in at]
        parent = [at[shape.parents[nodes[i]]] for i in fed]
        levels.append(
            Level(
                torch.tensor(choice, device=device),
                torch.tensor(fed, device=device) if fed else None,
                torch.tensor(parent, device=device),
            )
        )
    source = {node: i for i, node in enumerate(inner)}
    parents = torch.tensor([shape.parents], device=device)
    return (
        Draft.of_parents(torch.zeros_like(parents), parents, max_depth=shape.max_depth),
        levels,
        torch.tensor([source.get(node, 0) for node in range(shape.nodes)], device=device),
    )


@dataclass(frozen=True, slots=True)
class Siblings:
    """The n nodes of one depth.

    tokens  [B, n] int64.
    q       [B, n] probability of each token under the whole draft distribution.
    real    [B, n] bool; False where the distribution has no token left.
    """

    tokens: Tensor
    q: Tensor
    real: Tensor


@dataclass(frozen=True, slots=True)
class ShapedTree:
    """How a tree of fixed shape is filled.

    shape        the tree's shape; a regular one where siblings are drawn.
    sampling     the decoding settings: siblings are drawn from the distribution processed under
                 them.
    sampled      draw; otherwise take the likeliest tokens, whose q is under the raw softmax.
    replacement  siblings are independent draws.
    """

    shape: static.StaticTree
    sampling: Sampling
    sampled: bool = False
    replacement: bool = True

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes at each depth, the root's 1 first."""
        return tuple(self.shape.depth.count(d) for d in range(self.shape.max_depth + 1))

    def as_draft(self, device: torch.device) -> Draft:
        """A draft of this shape whose tokens mean nothing."""
        return _tables(self.shape, device)[0]

    def levels(self, device: torch.device) -> list[Level]:
        return _tables(self.shape, device)[1]

    def siblings(self, depth: int, logits: Tensor, u: Tensor) -> Siblings:
        """The nodes of a depth from the raw draft logits [B, M, V] of the M nodes above that have
        children; uniforms `u` [B, n] of a tree that is drawn."""
        width = self.shape.widths[depth - 1]
        if not self.sampled:
            tokens = logits.topk(width, dim=-1).indices
            q = logits.softmax(-1).gather(-1, tokens)
            choice = self.levels(logits.device)[depth - 1].choice
            tokens, q = (x.flatten(1).index_select(1, choice) for x in (tokens, q))
            return Siblings(tokens, q, torch.ones_like(tokens, dtype=torch.bool))
        probs = left = self.sampling.probs(logits)
        numbers, chosen, real = u.view(*logits.shape[:2], width), [], []
        for rank in range(width):
            token = draw(left, numbers[..., rank])
            chosen.append(token)
            real.append(left.gather(-1, token[..., None])[..., 0] > 0)
            if not self.replacement:
                left = left.scatter(-1, token[..., None], 0.0)
        tokens = torch.stack(chosen, -1)
        return Siblings(
            tokens.flatten(1), probs.gather(-1, tokens).flatten(1), torch.stack(real, -1).flatten(1)
        )

    def assemble(self, root: Tensor, levels: list[Siblings], logits: list[Tensor] | None) -> Draft:
        """The draft behind `root` [B, 1] from each depth's nodes and, where drafts carry a
        distribution, the raw logits [B, M, V] that they were taken from."""
        shape, _, source = _tables(self.shape, root.device)
        tokens = torch.cat([root, *(level.tokens for level in levels)], 1)
        q = torch.cat(
            [torch.ones_like(root, dtype=torch.float32), *(level.q for level in levels)], 1
        )
        whole = None if logits is None else torch.cat(logits, 1)[:, source]
        if max(self.shape.widths) == 1:
            return Draft.of_chain(tokens, sampled=self.sampled, logits=whole, q=q)
        real = torch.cat(
            [torch.ones_like(root, dtype=torch.bool), *(level.real for level in levels)], 1
        )
        # with all its ancestors
        valid = ~(shape.ancestors & ~real[:, None, :]).any(-1) if self.sampled else real
        return Draft(
            tokens,
            shape.parents,
            shape.ancestors,
            shape.depth,
            valid,
            self.sampled,
            whole,
            q,
            width=max(self.shape.widths),
            levels=shape.levels,
            replacement=self.replacement,
            sizes=self.sizes,
        )
