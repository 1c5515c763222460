"""What became of a position of a verified draft tree: the words that cycle files and traces use."""

from __future__ import annotations

from enum import StrEnum


class Clause(StrEnum):
    """Two bits of a kept token decide its clause. S: the lossless test with the same random number accepts it. A: it is
    the target's argmax. The same words as `methods.rules.clause.Clause`.

    ROOT       not a draft token: the last committed token, from which the draft starts.
    STRICT     kept, and S.
    ARGMAX     kept, not S but A: greedier than the lossless rule, no relaxation.
    RELAXED    kept, neither S nor A.
    REJECTED   tested (its parent was kept, no earlier sibling was) and not kept.
    UNREACHED  never tested.
    DRAWN      not a draft token: the correction or bonus after the kept path.
    """

    ROOT = "root"
    STRICT = "strict"
    ARGMAX = "argmax"
    RELAXED = "relaxed"
    REJECTED = "rejected"
    UNREACHED = "unreached"
    DRAWN = "drawn"


KEPT = (Clause.STRICT, Clause.ARGMAX, Clause.RELAXED)
"""Accepted draft tokens."""
EMITTED = (*KEPT, Clause.DRAWN)
"""Tokens that were emitted (the end of an answer may have cut the last few)."""
TESTED = (*KEPT, Clause.REJECTED)
"""Draft tokens that were tested."""
