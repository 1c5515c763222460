"""MARS, margin-aware verification: where the target hardly prefers its first choice, its second will do.

With z1 >= z2 the two largest target logits, of tokens v1 and v2, in the context of the child x, and r = z2/z1 (eq. 4;
eq. 6: r > theta is z1 - z2 < (1 - theta) z1). Song et al. 2026, section 3.4, Algorithm 1; theta = 0.9 throughout.

variant
  algorithm1  x = v1: accept. x = v2 and r > theta: accept. Otherwise reject and emit v1, which is the bonus as well.
              Deterministic at every temperature: a run at T=1 stays close to greedy decoding, although Table 1 compares
              it with a sampling baseline. If both v1 and v2 are children, v1 wins.
  sampling    the relaxation in front of the lossless test: x in {v1, v2} and r > theta: accept. Every other case is the
              lossless rule unchanged, including its emitted token; theta >= 1 is exactly `lossless`.
  released    what the authors' repository (5SSjw/MARS) does. T=0: greedy matching, no relaxation. T>0, with z the
              *processed* logits and r = z2/(z1 + 1e-10): r > theta: accept the first child in {v1, v2}, skip the others
              untested; none there: draw from the unmodified p. r <= theta: the lossless test with this rule's q_mode,
              the repository's being `draft` (min(1, p/q) for deterministic candidates). Two negative logits have
              r >= 1 and always relax.
indicator (the decision is always `indicator > theta`, smaller theta relaxes more, theta >= 1 never)
  logit_ratio   r. Meaningless for z1 <= 0: algorithm1 and sampling are strict there. Noted as `nonpositive_top1`.
  prob_ratio    p2/p1 = exp(z2 - z1)   (Figure 1b)
  logit_margin  1 - (z1 - z2): eq. 5 with a fixed scale in place of z1; theta = -1 allows a margin of 2
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from methods.rules.base import DraftCapabilities, Rule, ThresholdView
from methods.rules.lossless import QMode, lossless_test, residual
from methods.rules.verification import Verification
from methods.rules.walk import Decision
from methods.sampling import Sampling

EPSILON = 1e-10


class Mars(Rule):
    """theta: relaxation threshold on the indicator. q_mode: see `lossless`; unused by algorithm1."""

    variant: Literal["algorithm1", "sampling", "released"] = "algorithm1"
    indicator: Literal["logit_ratio", "prob_ratio", "logit_margin"] = "logit_ratio"
    theta: float = 0.9
    q_mode: QMode = "exact"

    def needs_q(self, sampling: Sampling) -> bool:
        return self.q_mode == "draft" and not sampling.greedy

    def emits_argmax(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.variant == "algorithm1"

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.variant == "algorithm1" and self.q_mode != "exact":
            raise ValueError("rule mars with variant=algorithm1 never looks at q: leave rule.q_mode=exact, or take "
                             "rule.variant=sampling or released")

    def decide(self, v: Verification) -> Decision:
        if self.variant == "released" and v.sampling.greedy:
            return Decision(v.is_argmax)
        top, ids = self._top(v)
        strict = lossless_test(v)
        close, far = self._sides(v, ids, strict)
        notes = {"nonpositive_top1": top[..., 0] <= 0} if self.indicator == "logit_ratio" else {}
        return Decision(torch.where(v.at_parent(self._indicator(top) > self.theta), close, far), strict, notes)

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        if self.variant == "released" and v.sampling.greedy:
            return None
        top, ids = self._top(v)
        score = v.at_parent(self._indicator(top))
        return ThresholdView("theta", ">", self.theta, score, *self._sides(v, ids, lossless_test(v)))

    def _top(self, v: Verification) -> tuple[Tensor, Tensor]:
        """The two largest logits that the variant looks at, and their tokens, both [B, N, 2]."""
        return torch.topk(v.processed, 2, dim=-1) if self.variant == "released" else v.top2

    def _sides(self, v: Verification, ids: Tensor, strict: Tensor) -> tuple[Tensor, Tensor]:
        """[B, N] bool: which nodes are kept where the indicator is above theta, and which where it is not."""
        in_top2 = (v.draft.tokens[..., None] == v.at_parent(ids)).any(-1)
        if self.variant == "algorithm1":
            return v.is_argmax | (in_top2 & ~v.any_sibling(v.is_argmax)), v.is_argmax
        test = strict if self.q_mode == "exact" else lossless_test(v, self.q_mode)
        return in_top2 if self.variant == "released" else in_top2 | test, test

    def _indicator(self, top: Tensor) -> Tensor:
        """[..., 2] largest logits -> [...] what is compared with theta; -inf where that is meaningless."""
        z1, z2 = top.unbind(-1)
        match self.indicator:
            case "prob_ratio":
                return (z2 - z1).exp()
            case "logit_margin":
                return 1.0 - (z1 - z2)
        if self.variant == "released":
            return z2 / (z1 + EPSILON)
        return torch.where(z1 > 0, z2 / z1, -torch.inf)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if self.emits_argmax(v.sampling):
            return super().emit(v, node)
        left = residual(v, node)
        if self.variant != "released":
            return left
        close = self._indicator(torch.topk(v.at(v.processed, node), 2, dim=-1).values) > self.theta
        return torch.where(close[:, None], v.p_at(node), left)
