"""MARS, margin-aware verification: accept the target's runner-up where its top-2 logit margin is
small.

With z1 >= z2 the two largest target logits, of tokens v1 and v2, in the context of the child x, and
r = z2/z1 (eq. 4; eq. 6: r > theta is z1 - z2 < (1 - theta) z1). Song et al. 2026, section 3.4,
Algorithm 1; theta = 0.9 throughout.

variant
  algorithm1  the paper's Algorithm 1. x = v1: accept. x = v2 and close: accept. Otherwise reject
              and emit v1, which is the bonus as well. Deterministic at every temperature: a run at
              T=1 stays close to greedy decoding, although Table 1 compares it with a sampling
              baseline. If both v1 and v2 are children, v1 wins.
  sampling    the relaxation in front of the lossless test. x in {v1, v2} and close: accept. Every
              other case is the lossless rule unchanged, its emitted token included; theta >= 1 is
              exactly `lossless`.
  released    what the authors' repository (5SSjw/MARS) does. T=0: greedy matching, no relaxation.
              T>0, with z the *processed* logits and r = z2/(z1 + 1e-10): in a close context accept
              the first child in {v1, v2} and skip the others untested; if none is there, draw from
              the unmodified p. Elsewhere the lossless test with this rule's q_mode, the
              repository's being `draft` (min(1, p/q) for deterministic candidates). Two negative
              logits have r >= 1 and always relax.
indicator  compared with theta (relax iff `indicator > theta`: a smaller theta relaxes more, theta
           >= 1 never relaxes)
  logit_ratio   r. Has no meaning for z1 <= 0: algorithm1 and sampling are strict there, and
                `nonpositive_top1` is set.
  prob_ratio    p2/p1 = exp(z2 - z1)   (Figure 1b)
  logit_margin  1 - (z1 - z2): eq. 5 with a fixed scale in place of z1; theta = -1 allows a margin
                of 2
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from methods.rules.base import (
    Decision,
    DraftCapabilities,
    Rule,
    Sampling,
    ThresholdView,
    Verification,
)
from methods.rules.lossless import QMode, lossless_test, residual

EPSILON = 1e-10


class Mars(Rule):
    """theta: relaxation threshold on the indicator. q_mode: see `lossless`; unused by
    algorithm1."""

    variant: Literal["algorithm1", "sampling", "released"] = "algorithm1"
    indicator: Literal["logit_ratio", "prob_ratio", "logit_margin"] = "logit_ratio"
    theta: float = 0.9
    q_mode: QMode = "exact"

    def is_lossless(self, sampling: Sampling) -> bool:
        return self.variant == "released" and sampling.greedy

    def needs_q(self, sampling: Sampling) -> bool:
        return self.q_mode == "draft" and not sampling.greedy

    def emits_argmax(self, sampling: Sampling) -> bool:
        return self.variant == "algorithm1" or sampling.greedy

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.theta > 1 and (self.variant, self.indicator) != ("released", "logit_ratio"):
            raise ValueError(
                f"rule.theta={self.theta:g}: must be ≤ 1, because {self.indicator} never exceeds "
                "1 (1 disables relaxation)"
            )
        if self.variant == "algorithm1" and self.q_mode != "exact":
            raise ValueError(
                f"rule.q_mode={self.q_mode}: rule=mars with rule.variant=algorithm1 does not "
                "read q; set rule.q_mode=exact, or rule.variant=sampling or released"
            )

    def decide(self, v: Verification) -> Decision:
        if self.is_lossless(v.sampling):
            return Decision(v.is_argmax)
        top, ids = self._top(v)
        lossless = lossless_test(v)
        close, far = self._sides(v, ids, lossless)
        flags = {"nonpositive_top1": top[..., 0] <= 0} if self.indicator == "logit_ratio" else {}
        return Decision(
            torch.where(v.at_parent(self._score(top) > self.theta), close, far), lossless, flags
        )

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        if self.is_lossless(v.sampling):
            return None
        top, ids = self._top(v)
        close, far = self._sides(v, ids, lossless_test(v))
        return ThresholdView("theta", ">", self.theta, v.at_parent(self._score(top)), close, far)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if self.emits_argmax(v.sampling):
            return super().emit(v, node)
        if self.variant == "sampling":
            return residual(v, node)
        close = self._score(torch.topk(v.at(v.processed, node), 2, dim=-1).values) > self.theta
        return torch.where(close[:, None], v.p_at(node), residual(v, node))

    def _top(self, v: Verification) -> tuple[Tensor, Tensor]:
        """The two largest logits of each context and their tokens, both [B, N, 2]."""
        if self.variant != "released":
            return v.top2
        values, ids = torch.topk(v.processed, 2, dim=-1)
        return values, ids

    def _score(self, top: Tensor) -> Tensor:
        """The indicator, which exceeds theta in a close context: two largest logits [..., 2] ->
        [...]; -inf where it has no meaning."""
        z1, z2 = top.unbind(-1)
        if self.indicator == "prob_ratio":
            return (z2 - z1).exp()
        if self.indicator == "logit_margin":
            return 1.0 - (z1 - z2)
        return (
            z2 / (z1 + EPSILON)
            if self.variant == "released"
            else torch.where(z1 > 0, z2 / z1, -torch.inf)
        )

    def _sides(self, v: Verification, ids: Tensor, lossless: Tensor) -> tuple[Tensor, Tensor]:
        """[B, N] bool: which nodes are kept in a close context, and which in any other; `ids` [B,
        N, 2] are v1 and v2, `lossless` what the lossless test accepts."""
        in_top2 = (v.draft.tokens[..., None] == v.at_parent(ids)).any(-1)
        if self.variant == "algorithm1":
            return v.is_argmax | (in_top2 & ~v.any_sibling(v.is_argmax)), v.is_argmax
        test = lossless if self.q_mode == "exact" else lossless_test(v, self.q_mode)
        return in_top2 | test if self.variant == "sampling" else in_top2, test
