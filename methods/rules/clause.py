"""Why a node of a draft tree was kept, or why it was not."""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from methods.rules.verification import Verification
from methods.rules.walk import Decision, Walk


class Clause(IntEnum):
    """What became of a position of a verified tree; the values are codes for tensors.

    Two bits of a kept node decide its clause. S: the lossless test with the same random number accepts the token. A: it
    is the target's argmax. At temperature 0 the lossless test is greedy matching, so that S equals A.

    ROOT       not a draft token: the last committed token.
    STRICT     kept, and S.
    ARGMAX     kept, not S but A: the rule is greedier than the target's distribution asks for, and relaxes nothing.
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
    kept = torch.where(decision.lossless, Clause.STRICT, torch.where(v.is_argmax, Clause.ARGMAX, Clause.RELAXED))
    refused = torch.where(tested, Clause.REJECTED, Clause.UNREACHED)
    return torch.where(v.draft.depth == 0, Clause.ROOT, torch.where(path.kept, kept, refused))
