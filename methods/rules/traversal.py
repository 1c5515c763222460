"""Traversal verification: judge a tree of sampled siblings from its leaves to its root. Lossless.

Each context has M, S and alpha (`Remainder` in lossless.py), at first p, q and, from the root down,

    alpha(root) = 1,   alpha(child x) = min(1, alpha(parent) M(x)/S(x))

Depth first, the next leaf is accepted with probability alpha, and with it its whole path; the token after it is drawn
from its M. Otherwise the leaf is deleted, its parent's M and alpha (and S, for siblings drawn without replacement)
change as after a rejection, and its next child is entered from there; a node that has lost all its children is a leaf.
The root is accepted at last. A node's alpha when it is tested depends on its path and on earlier siblings along it, not
on a random number: all nodes are tested at once, and a subtree is entered iff one of its nodes passes.

Lossless for independent siblings and for those drawn without replacement; on a chain it is `block`. At temperature 0
greedy matching. It needs siblings that were drawn from q: drafter=model with drafter.branching, or an
EAGLE head with drafter.tree=sampled.
Source: Weng et al. 2025, "Traversal Verification for Speculative Tree Decoding" (arXiv 2505.12398); no official code.

In docs/rules.md
  accepts  the path of the first leaf with `u < alpha`; rejected leaves are deleted, from the leaves to the root
  reads    p, q; trees of sampled siblings, sampled chains
  emits    M, what the rejections leave of p
  strict   always lossless
  source   traversal verification, arXiv 2505.12398
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from methods.rules.base import Decision, DraftCapabilities, Rule, Sampling, Verification
from methods.rules.lossless import Remainder, rejected


class Traversal(Rule):
    local: ClassVar[bool] = False

    def is_lossless(self, sampling: Sampling) -> bool:
        return True

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if not (candidates.sampled or sampling.greedy):
            raise ValueError(f"rule=traversal is defined for sampled siblings, and drafter={candidates.drafter} draws "
                             "none: use drafter=model drafter.branching=[2,2], an EAGLE head with drafter.tree=sampled "
                             "drafter.branching=[2,2], or rule=lossless")

    def decide(self, v: Verification) -> Decision:
        if v.sampling.greedy:
            return Decision(v.is_argmax)
        v.notes["entry"], tested = alphas(v)
        passes = (v.u < tested) & v.draft.valid
        return Decision((v.draft.ancestors & passes[..., None]).any(1))

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if v.sampling.greedy:
            return super().emit(v, node)
        entry = v.notes["entry"] if "entry" in v.notes else alphas(v)[0]
        return rejected(v, node, v.at(entry, node))


def alphas(v: Verification) -> tuple[Tensor, Tensor]:
    """alpha of every node when it is entered, and when it is tested, all its children rejected: both [B, N].

    Level by level: one round per sibling rank over the contexts of a depth, or over all where the shape is unknown."""
    draft = v.draft
    entry = torch.zeros_like(v.u, dtype=v.p.dtype)
    entry[:, 0] = 1.0
    tested, ranks = entry.clone(), v.earlier_siblings.sum(-1)
    children = [v.child(rank) for rank in range(draft.width or draft.nodes - 1)]
    for depth, (first, last) in enumerate(_contexts(v)):
        here = slice(first, last)
        left = Remainder(v.p[:, here], v.q[:, here], entry[:, here], draft.replacement)
        for rank, (child, real) in enumerate(children):
            token = draft.tokens.gather(1, child[:, here])
            reach = torch.zeros_like(entry)
            reach[:, here] = left.reach(token)
            entry = torch.where((ranks == rank) & (draft.depth == depth + 1) & draft.valid, v.at_parent(reach), entry)
            left = left.reject(token, real[:, here])
        tested = torch.where(draft.depth == depth, torch.zeros_like(entry).index_copy(
            1, torch.arange(first, last, device=entry.device), left.alpha), tested)
    return entry, torch.where(draft.depth == len(_contexts(v)), entry, tested)


def _contexts(v: Verification) -> list[tuple[int, int]]:
    """The nodes that may have children, first and one past the last of them, at each depth from 0 on."""
    sizes = (1,) * v.draft.nodes if v.draft.chain else v.draft.sizes
    if sizes is None:
        return [(0, v.draft.nodes)] * v.draft.nodes
    places, first = [], 0
    for size in sizes[:-1]:
        places.append((first, first + size))
        first += size
    return places
