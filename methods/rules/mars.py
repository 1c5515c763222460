"""MARS, margin-aware verification: accept the target's runner-up where its top-2 logit margin is small.

With z1 >= z2 the two largest target logits, of tokens v1 and v2, in the context of the child x, and r = z2/z1 (eq. 4;
eq. 6: r > theta is z1 - z2 < (1 - theta) z1). Song et al. 2026, section 3.4, Algorithm 1; theta = 0.9 throughout.

variant    algorithm1, sampling or released: see the classes in methods/rules/_mars_variants.py.
indicator  compared with theta (relax iff `indicator > theta`: a smaller theta relaxes more, theta >= 1 never relaxes)
  logit_ratio   r. Has no meaning for z1 <= 0: algorithm1 and sampling are strict there, and `nonpositive_top1` is set.
  prob_ratio    p2/p1 = exp(z2 - z1)   (Figure 1b)
  logit_margin  1 - (z1 - z2): eq. 5 with a fixed scale in place of z1; theta = -1 allows a margin of 2

In docs/rules.md
  accepts  the runner-up where `z2/z1 > theta`, else the argmax (`algorithm1`) or the lossless test
           (`sampling`)
  reads    the two largest z, p; any candidates
  emits    `algorithm1`: argmax z; else the lossless residual
  strict   `theta=1`: greedy matching (`algorithm1`), lossless (`sampling`)
  source   MARS: `algorithm1` (paper), `released` (the authors' code)
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from methods.rules._mars_variants import VARIANTS, Indicator, Variant
from methods.rules.base import DraftCapabilities, Rule, ThresholdView
from methods.rules.lossless import QMode
from methods.rules.verification import Verification
from methods.rules.walk import Decision
from methods.sampling import Sampling


class Mars(Rule):
    """theta: relaxation threshold on the indicator. q_mode: see `lossless`; unused by algorithm1."""

    variant: Literal["algorithm1", "sampling", "released"] = "algorithm1"
    indicator: Indicator = "logit_ratio"
    theta: float = 0.9
    q_mode: QMode = "exact"

    @property
    def _acceptance(self) -> Variant:
        return VARIANTS[self.variant](self.indicator, self.theta, self.q_mode)

    def is_lossless(self, sampling: Sampling) -> bool:
        return self.variant == "released" and sampling.greedy

    def needs_q(self, sampling: Sampling) -> bool:
        return self.q_mode == "draft" and not sampling.greedy

    def emits_argmax(self, sampling: Sampling) -> bool:
        return self._acceptance.emits_argmax(sampling)

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.theta > 1 and (self.variant, self.indicator) != ("released", "logit_ratio"):
            raise ValueError(f"rule.theta={self.theta:g}: must be ≤ 1, because {self.indicator} never exceeds 1 (1 "
                             "disables relaxation)")
        if self.variant == "algorithm1" and self.q_mode != "exact":
            raise ValueError(f"rule.q_mode={self.q_mode}: rule=mars with rule.variant=algorithm1 does not read q; set "
                             "rule.q_mode=exact, or rule.variant=sampling or released")

    def decide(self, v: Verification) -> Decision:
        return self._acceptance.decide(v)

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        return self._acceptance.threshold_view(v)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return super().emit(v, node) if self.emits_argmax(v.sampling) else self._acceptance.emit(v, node)
