"""Random acceptance: a control that shows whether it matters *which* draft tokens are accepted.

    accept x  iff  u < rate;   correction and bonus: draw from the target's processed distribution p

u is uniform in [0, 1), one number per node. Source: FSD, Appendix E and Figure 6 ("random FSD baseline").
On a tree each sibling is tried in turn, so a context with k children goes on with probability 1 - (1 - rate)^k.

In docs/rules.md
  accepts  `u < rate`; a control
  reads    nothing; any candidates
  emits    p
  strict   none: `rate=0` rejects every token
  source   FSD's random baseline
"""

from __future__ import annotations

from pydantic import Field

from methods.rules.base import Decision, Rule, Verification
from methods.rules.lossless import lossless_test


class Random(Rule):
    """rate: probability with which a draft token is accepted, whatever it is."""

    rate: float = Field(0.5, ge=0.0, le=1.0)

    def decide(self, v: Verification) -> Decision:
        return Decision(v.u < self.rate, lossless_test(v))
