"""A rule's local decisions, the one walk over the tree that all rules share, and why a node was
kept or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import torch
from torch import Tensor

from methods.rules.verification import NamedTensors, Verification
from methods.trees.draft import Draft


@dataclass(slots=True)
class Decision:
    """A rule's local decisions, all nodes at once.

    accept           [B, N] bool  the node is kept if it is tested, i.e. if its parent was kept and
                                  its earlier siblings were not. The root's entry is ignored.
    lossless_accept  [B, N] bool  what the lossless test (greedy matching at T=0) decides with the
                                  same random numbers; None for a rule that is lossless itself.
    flags            name -> [B, N] bool per context: events worth counting, such as a threshold
                     that has no meaning there. Any name is allowed.
    """

    accept: Tensor
    lossless_accept: Tensor | None = None
    flags: NamedTensors = field(default_factory=dict)

    @property
    def lossless(self) -> Tensor:
        """[B, N] bool: the lossless test accepts the node."""
        return self.accept if self.lossless_accept is None else self.lossless_accept


@dataclass(slots=True)
class Walk:
    """The kept path.

    kept      [B, N] bool  its nodes, root included.
    last      [B] int64    its deepest node.
    length    [B] int64    accepted draft tokens, the root not counted.
    relaxed   [B, N] bool  kept nodes that the lossless test rejects and whose token is not the
                           target's argmax; None for a rule that is lossless itself.
    greedier  [B, N] bool  kept nodes that the lossless test rejects although their token is the
                           target's argmax; None likewise.
    flags     name -> [B, N] bool  the rule's flags in the contexts of the path.
    """

    kept: Tensor
    last: Tensor
    length: Tensor
    relaxed: Tensor | None = None
    greedier: Tensor | None = None
    flags: NamedTensors = field(default_factory=dict)

    def by_depth(self, draft: Draft) -> Tensor:
        """[B, D] int64: the kept node of each depth 0, 1, …, behind the last one the depth itself;
        D is `draft.levels`, or N."""
        levels = min(draft.levels or draft.nodes, draft.nodes)
        nodes = torch.arange(max(levels + 1, draft.nodes), device=self.kept.device)
        # one column more, for the nodes that are not kept
        unkept = nodes[: levels + 1].expand(len(self.kept), -1)
        place = torch.where(self.kept, draft.depth, levels)
        return unkept.scatter(1, place, nodes[: draft.nodes].expand_as(place))[:, :levels]

    @property
    def relaxed_count(self) -> Tensor:
        """[B] int64: accepted draft tokens that are relaxed."""
        return torch.zeros_like(self.length) if self.relaxed is None else self.relaxed.sum(1)

    @property
    def greedier_count(self) -> Tensor:
        """[B] int64: accepted draft tokens that are greedier."""
        return torch.zeros_like(self.length) if self.greedier is None else self.greedier.sum(1)


def walk(v: Verification, decision: Decision) -> Walk:
    """Follow the first accepted child from the root, for all rows at once and without a loop over
    depth.

    A node is on the path iff it and all its ancestors are each the first accepted among their
    siblings."""
    draft = v.draft
    first = decision.accept & draft.valid
    if draft.chain:
        length = last = first[:, 1:].cumprod(1).sum(1)
        kept = draft.depth <= length[:, None]
    else:
        # of bools: a > b is a and not b
        first = first > (v.earlier_siblings & first[:, None, :]).any(-1)
        first[:, 0] = True
        kept = (draft.ancestors <= first[:, None, :]).all(-1)  # a <= b: a implies b
        length = kept.sum(1) - 1
        last = torch.where(kept, draft.depth, -1).argmax(1)
    path = Walk(
        kept, last, length, flags={name: kept & flag for name, flag in decision.flags.items()}
    )
    if decision.lossless_accept is not None:
        not_strict = kept & ~decision.lossless_accept & (draft.depth > 0)
        path.relaxed, path.greedier = not_strict & ~v.is_argmax, not_strict & v.is_argmax
    return path


class Clause(IntEnum):
    """What became of a position of a verified tree; the values are codes for tensors.

    Two bits of a kept node decide its clause. S: the lossless test with the same random number
    accepts the token. A: it is the target's argmax. At temperature 0 the lossless test is greedy
    matching, so that S equals A.

    ROOT       not a draft token: the last committed token.
    STRICT     kept, and S.
    ARGMAX     kept, not S but A: the rule is greedier than the target's distribution asks for, and
               relaxes nothing.
    RELAXED    kept, neither S nor A.
    REJECTED   tested (its parent was kept, no earlier sibling was) and not kept.
    UNREACHED  never tested.
    DRAWN      not a draft token: the correction or bonus after the kept path.
    """

    ROOT = 0
    STRICT = 1
    ARGMAX = 2
    RELAXED = 3
    REJECTED = 4
    UNREACHED = 5
    DRAWN = 6

    @property
    def word(self) -> str:
        """The clause as files spell it."""
        return self.name.lower()


KEPT = (Clause.STRICT, Clause.ARGMAX, Clause.RELAXED)
"""Clauses of accepted draft tokens."""


def clauses(v: Verification, decision: Decision, path: Walk) -> Tensor:
    """[B, N] int64: the code of each node's `Clause`. Padding nodes count as unreached."""
    behind_kept = (v.earlier_siblings & path.kept[:, None, :]).any(-1)
    tested = v.at_parent(path.kept) & ~behind_kept & v.draft.valid
    kept = torch.where(
        decision.lossless, Clause.STRICT, torch.where(v.is_argmax, Clause.ARGMAX, Clause.RELAXED)
    )
    refused = torch.where(tested, Clause.REJECTED, Clause.UNREACHED)
    return torch.where(v.draft.depth == 0, Clause.ROOT, torch.where(path.kept, kept, refused))
