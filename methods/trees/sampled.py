"""Trees whose siblings are drawn from the draft's distribution, with or without replacement.

Source: SpecInfer (Miao et al. 2024), independent siblings; Jeon et al. 2024, "Recursive Speculative Decoding", constant
branching factors and siblings drawn without replacement. The shape is regular and the same in every cycle: at depth d
each node has branching[d] children, and one behind the last of the factors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
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
        raise ValueError(f"{math.prod(factors)} nodes at one depth; at most {LARGEST_LEVEL}: give fewer or smaller "
                         "factors")
    return factors


Branching = Annotated[list[PositiveInt], Field(max_length=32), AfterValidator(_bounded)]
"""Children of each node, from the root's depth on."""


@lru_cache(maxsize=64)
def _as_draft(parents: tuple[int, ...], depth: int, device: torch.device) -> Draft:
    above = torch.tensor([parents], device=device)
    return Draft.of_parents(torch.zeros_like(above), above, max_depth=depth)


@dataclass(frozen=True, slots=True)
class Siblings:
    """The children drawn for M contexts, k each.

    tokens  [B, M, k] int64.
    q       [B, M, k] probability of each token under the whole draft distribution.
    real    [B, M, k] bool; False where the distribution has no token left.
    """

    tokens: Tensor
    q: Tensor
    real: Tensor


@dataclass(frozen=True, slots=True)
class SampledTree:
    """How a tree is drawn.

    shape        the tree's shape.
    sampling     the decoding settings: siblings are drawn from the distribution processed under them.
    sampled      draw; otherwise take the likeliest tokens, whose q is under the raw softmax.
    replacement  siblings are independent draws.
    """

    shape: static.StaticTree
    sampling: Sampling
    sampled: bool
    replacement: bool

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes at each depth, the root's 1 first."""
        depth = self.shape.depth
        return tuple(depth.count(d) for d in range(self.shape.max_depth + 1))

    def as_draft(self, device: torch.device) -> Draft:
        """A draft of this shape whose tokens mean nothing."""
        return _as_draft(self.shape.parents, self.shape.max_depth, device)

    def siblings(self, logits: Tensor, u: Tensor) -> Siblings:
        """Children of M contexts from their raw draft logits [B, M, V] and uniforms `u` [B, M, k]."""
        k = u.shape[-1]
        if not self.sampled:
            tokens = logits.topk(k, dim=-1).indices
            return Siblings(tokens, logits.softmax(-1).gather(-1, tokens), torch.ones_like(tokens, dtype=torch.bool))
        probs = left = self.sampling.probs(logits)
        chosen, real = [], []
        for rank in range(k):
            token = draw(left, u[..., rank])
            chosen.append(token)
            real.append(left.gather(-1, token[..., None])[..., 0] > 0)
            if not self.replacement:
                left = left.scatter(-1, token[..., None], 0.0)
        tokens = torch.stack(chosen, -1)
        return Siblings(tokens, probs.gather(-1, tokens), torch.stack(real, -1))

    def assemble(self, root: Tensor, levels: list[Siblings], logits: list[Tensor] | None) -> Draft:
        """The draft behind `root` [B, 1] from each depth's siblings and, where drafts carry a distribution, the raw
        logits [B, M, V] that they were drawn from."""
        tokens = torch.cat([root, *(level.tokens.flatten(1) for level in levels)], 1)
        q = torch.cat([torch.ones_like(root, dtype=torch.float32), *(level.q.flatten(1) for level in levels)], 1)
        real = torch.cat([torch.ones_like(root, dtype=torch.bool), *(level.real.flatten(1) for level in levels)], 1)
        whole = None if logits is None else torch.cat([*logits, logits[0].new_zeros(
            len(root), self.sizes[-1], logits[0].shape[-1])], 1)
        if max(self.shape.widths) == 1:
            return Draft.of_chain(tokens, sampled=self.sampled, logits=whole, q=q)
        shape = self.as_draft(root.device)
        valid = ~(shape.ancestors & ~real[:, None, :]).any(-1)  # with all its ancestors
        return Draft(tokens, shape.parents, shape.ancestors, shape.depth, valid, self.sampled, whole, q,
                     width=max(self.shape.widths), levels=shape.levels, replacement=self.replacement, sizes=self.sizes)
