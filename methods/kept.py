"""Logits of contexts, or what a file keeps of them: the largest, those of the drafted tokens, and
the mass of all others.

They are put before a rule in one of two forms. *Whole*: over the vocabulary, the others' mass
spread evenly over them. *Narrow*: a context's tokens are numbered anew, those that are kept first
and then `OTHERS` that share the others' mass. A rule of p, q and ranks sees the same in both; the
entropy of the others is smaller in the narrow one, and its numbers are not token ids."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.rules.verification import Verification
from methods.trees.draft import Draft

OTHERS = 64
"""Tokens that share the mass of all that are not kept, in the narrow form, at least."""


@dataclass(slots=True)
class Logits:
    """Logits [C, N, V] of contexts, or what is kept of them.

    largest  [C, N] float32
    values   [C, N, k] float16: z - largest of the tokens `ids`; with top = 0 [C, N, V] float32 raw
    ids      [C, N, k] integers; empty with top = 0
    child    [C, N] float32: the raw logit of each node's own token at its parent
    rest     [C, N] float32: log of the mass of all other tokens, exp(z - largest) summed
    """

    largest: Tensor
    values: Tensor
    ids: Tensor
    child: Tensor
    rest: Tensor

    @classmethod
    def of(cls, logits: Tensor, v: Verification, top: int) -> Logits:
        """Keep the `top` largest of `logits` [B, N, V]."""
        z = logits.nan_to_num(0.0)
        child = v.of_token(z)
        largest = z.amax(-1)
        if not top or top >= z.shape[-1]:
            empty = torch.zeros(*z.shape[:2], 0, dtype=torch.int32)
            rest = torch.full_like(largest, -torch.inf)
            return cls(largest, z.float(), empty, child, rest)
        values, ids = z.topk(top, -1)
        mass = (z - largest[..., None]).double().exp()
        mass.scatter_(-1, ids, 0.0)
        rows = torch.arange(len(z), device=z.device)[:, None].expand_as(v.parent)
        is_child = v.draft.valid & (v.draft.depth > 0)
        mass[rows[is_child], v.parent[is_child], v.draft.tokens[is_child]] = 0.0
        rest = mass.sum(-1).log().float()
        return cls(largest, (values - largest[..., None]).half(), ids, child, rest)

    def dense(self, draft: Draft, vocab: int) -> Tensor:
        """[B, N, V] float32."""
        if not self.ids.shape[-1]:
            return self.values.float()
        shape = (*self.largest.shape, vocab)
        placed = torch.zeros(shape, dtype=torch.bool)
        placed.scatter_(-1, self.ids.long(), True)
        rows, nodes = (draft.valid & (draft.depth > 0)).nonzero(as_tuple=True)
        parents, tokens = draft.parents[rows, nodes], draft.tokens[rows, nodes]
        placed[rows, parents, tokens] = True
        others = (~placed).sum(-1).clamp(min=1)
        level = self.largest + self.rest - others.log()
        z = level[..., None].expand(shape).clone()
        z.scatter_(-1, self.ids.long(), self.largest[..., None] + self.values.float())
        z[rows, parents, tokens] = self.child[rows, nodes]
        return z

    def __getitem__(self, places: Tensor) -> Logits:
        return Logits(
            *(part[places] for part in (self.largest, self.values, self.ids, self.child, self.rest))
        )


PARTS = ("largest", "values", "ids", "child", "rest")


@dataclass(frozen=True, slots=True)
class Narrow:
    """The narrow form of some drafts.

    tokens  [B, N] int64: the number of each node's token in the context of its parent.
    target, draft  [B, N, W] float32 logits; `draft` None for drafts without a distribution.
    """

    tokens: Tensor
    target: Tensor
    draft: Tensor | None

    @classmethod
    def of(cls, v: Draft, target: Logits, draft: Logits | None, vocab: int) -> Narrow:
        """Number the tokens of each context anew: its children's, the largest of both models."""
        children, rank = _children(v)
        sides = [target] if draft is None else [target, draft]
        ids = torch.cat([children, *(side.ids.long() for side in sides)], -1)
        ordered, order = ids.sort(dim=-1, stable=True)
        is_new = torch.ones_like(ordered, dtype=torch.bool)
        is_new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
        kept = torch.empty_like(is_new).scatter_(-1, order, is_new) & (ids >= 0)
        same = children[..., :, None] == children[..., None, :]
        twin = same.to(torch.uint8).argmax(-1)  # the first sibling that has the same token
        rows = torch.arange(len(rank))[:, None]
        tokens = twin[rows, v.parents.clamp(min=0), rank]
        spread = [_spread(side, v, ids, kept, rank, vocab) for side in sides]
        return cls(tokens, spread[0], None if draft is None else spread[1])


def _children(draft: Draft) -> tuple[Tensor, Tensor]:
    """[B, N, C] tokens of each context's children, -1 where there are fewer, and [B, N] which child
    of its parent a node is, from 0."""
    real = draft.valid & (draft.depth > 0)
    parents = draft.parents
    siblings = (parents[:, :, None] == parents[:, None, :]) & real[:, None, :] & real[:, :, None]
    rank = siblings.tril(-1).sum(-1)
    width = int(torch.where(real, rank, 0).max()) + 1
    children = torch.full((*parents.shape, width), -1)
    rows, nodes = real.nonzero(as_tuple=True)
    children[rows, parents[rows, nodes], rank[rows, nodes]] = draft.tokens[rows, nodes]
    return children, rank


def _spread(
    side: Logits, draft: Draft, ids: Tensor, kept: Tensor, rank: Tensor, vocab: int
) -> Tensor:
    """[B, N, E + OTHERS] logits of one model for the tokens `ids` [B, N, E] where they are `kept`,
    then for those that share the rest."""
    ordered, order = side.ids.long().sort(-1)
    place = torch.searchsorted(ordered, ids).clamp(max=ordered.shape[-1] - 1)
    known = ordered.gather(-1, place) == ids
    place = order.gather(-1, place)
    values = side.largest[..., None] + side.values.float().gather(-1, place)
    rows, nodes = (draft.valid & (draft.depth > 0)).nonzero(as_tuple=True)
    at = rows, draft.parents[rows, nodes], rank[rows, nodes]
    beyond = torch.zeros_like(known)  # children that are not among the largest
    beyond[at] = ~known[at]
    known[at] = True
    values[at] = side.child[rows, nodes]
    unknown = vocab - side.ids.shape[-1] - (beyond & kept).sum(-1)
    level = side.largest + side.rest - unknown.log()
    left = unknown - (kept & ~known).sum(-1)
    others = OTHERS + (~kept).sum(-1)
    share = (level + left.log() - others.log())[..., None]
    values = torch.where(known, values, level[..., None])
    values = torch.where(kept, values, share)
    return torch.cat([values, share.expand(*share.shape[:-1], OTHERS)], -1)
