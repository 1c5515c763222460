"""SGLang's acceptance thresholds: accept a likely token without a draw, and draw against a part of the target's mass.

In one context with children x_1, x_2, ... in draft order and S_j = p(x_1) + ... + p(x_j), each tested with its own u:

    accept x_j  iff  p(x_j) >= single  or  u < p(x_j)/(acc - S_(j-1));   bonus: p
    all rejected: draw from p without the children

p is the processed target distribution. A repeated sibling has lost its mass. Defined for chains and trees and for any
candidates: the draft's probabilities are never used, so a token drawn from q is accepted with probability p(x), not
min(1, p(x)/q(x)); whether a token counts as relaxed is decided by the lossless test without q, too. SGLang draws one
number for all siblings, coin <= S_j/acc, which gives the same probabilities.

single = acc = 1 is lossless, for sampled candidates too; no other setting is. At temperature 0: greedy matching,
whatever the thresholds.
Source: sgl-kernel/csrc/speculative/speculative_sampling.cuh 120affb9, TreeSpeculativeSamplingTargetOnly.

In docs/rules.md
  accepts  `p(x) >= single` without a draw, else `u (acc - S) < p(x)`, S = mass of the earlier siblings
  reads    p; any candidates, chains and trees
  emits    p without the rejected children
  strict   `single=1 acc=1` (default): lossless
  source   SGLang: `--speculative-accept-threshold-single`, `--speculative-accept-threshold-acc`
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Decision, Rule, Sampling, ThresholdView, Verification
from methods.rules.lossless import mass_test, sibling_mass, without_children


class Threshold(Rule):
    """single: probability from which a token is accepted without a draw. acc: the mass that is drawn against."""

    single: float = Field(1.0, ge=0.0, le=1.0)
    acc: float = Field(1.0, ge=1e-9, le=1.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or (self.single == 1.0 and self.acc == 1.0)

    def decide(self, v: Verification) -> Decision:
        if v.sampling.greedy:
            return Decision(v.is_argmax)
        view = self._view(v)
        return Decision(view.holds | view.outside, mass_test(v))

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        return None if v.sampling.greedy else self._view(v)

    def _view(self, v: Verification) -> ThresholdView:
        drawn = mass_test(v, self.acc)
        return ThresholdView("single", ">=", self.single, sibling_mass(v)[0], torch.ones_like(drawn), drawn)

    def by_threshold(self, v: Verification) -> Tensor:
        """Accepted because of `single` or `acc`: not by the lossless test."""
        decision = self.decide(v)
        return decision.accept & ~decision.lossless

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return v.p_at(node) if v.sampling.greedy else without_children(v, node, v.p_at(node))
