"""A rule's local decisions, and the one walk over the tree that all rules share."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from methods.rules.verification import Verification


@dataclass(slots=True)
class Decision:
    """A rule's local decisions, all nodes at once.

    accept  [B, N] bool  the node is kept if it is tested, i.e. if its parent was kept and its earlier siblings were
                         not. The root's entry is ignored.
    lossless_accept  [B, N] bool  what the lossless test (greedy matching at T=0) decides with the same random numbers;
                         None when the rule is itself lossless.
    flags   name -> [B, N] bool per context: events worth counting, such as a threshold that has no meaning there.
    """

    accept: Tensor
    lossless_accept: Tensor | None = None
    flags: dict[str, Tensor] = field(default_factory=dict)


@dataclass(slots=True)
class Walk:
    """The path that was kept.

    kept     [B, N] bool  its nodes, root included.
    last     [B] int64    its deepest node.
    length   [B] int64    accepted draft tokens, the root not counted.
    flags    name -> [B, N] bool on the path: "relaxed", where the strict rule would have rejected the node; every other
             name is a note of the rule, where it was set for the node's context.
    """

    kept: Tensor
    last: Tensor
    length: Tensor
    flags: dict[str, Tensor] = field(default_factory=dict)

    @property
    def relaxed(self) -> Tensor:
        """[B] int64: accepted draft tokens that the strict rule would have rejected."""
        return self.flags["relaxed"].sum(1) if "relaxed" in self.flags else torch.zeros_like(self.length)

    @property
    def notes(self) -> dict[str, Tensor]:
        """name -> [B] int64: on how many contexts of the path the rule's note was set."""
        return {name: mark.sum(1) for name, mark in self.flags.items() if name != "relaxed"}


def walk(v: Verification, decision: Decision) -> Walk:
    """Follow the first accepted child from the root, for all rows at once and without a loop over depth.

    A node is on the path iff it and all its ancestors are each the first accepted among their siblings."""
    draft = v.draft
    first = decision.accept & draft.valid
    if draft.chain:
        length = last = first[:, 1:].cumprod(1).sum(1)
        kept = draft.depth <= length[:, None]
    else:
        first = first & ~(v.earlier_siblings & first[:, None, :]).any(-1)
        first[:, 0] = True
        kept = ~(draft.ancestors & ~first[:, None, :]).any(-1)
        length = kept.sum(1) - 1
        last = torch.where(kept, draft.depth, -1).argmax(1)
    marks = {name: kept & note for name, note in decision.flags.items()}
    if decision.lossless_accept is not None:
        marks["relaxed"] = kept & ~decision.lossless_accept & (draft.depth > 0)
    return Walk(kept, last, length, marks)
