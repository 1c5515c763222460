"""The three variants of MARS: which nodes are kept on each side of the threshold, and what is emitted.

`top` holds the two largest logits z1 >= z2 of a context, `close` means that the indicator exceeds theta."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from methods.rules.base import ThresholdView
from methods.rules.lossless import QMode, lossless_test, residual
from methods.rules.verification import Verification
from methods.rules.walk import Decision
from methods.sampling import Sampling

Indicator = Literal["logit_ratio", "prob_ratio", "logit_margin"]
EPSILON = 1e-10


@dataclass(frozen=True)
class Variant(ABC):
    """What the variants share.

    indicator  what is compared with theta.
    theta      the threshold: close iff indicator > theta.
    q_mode     of the lossless test where a context is not close.
    """

    indicator: Indicator
    theta: float
    q_mode: QMode

    def decide(self, v: Verification) -> Decision:
        """The rule's decision."""
        top, ids = self.top(v)
        lossless = lossless_test(v)
        close, far = self.sides(v, self._in_top2(v, ids), lossless)
        flags = {"nonpositive_top1": top[..., 0] <= 0} if self.indicator == "logit_ratio" else {}
        return Decision(torch.where(v.at_parent(self.score(top) > self.theta), close, far), lossless, flags)

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        """The decision as a function of theta; None where it does not depend on theta."""
        top, ids = self.top(v)
        close, far = self.sides(v, self._in_top2(v, ids), lossless_test(v))
        return ThresholdView("theta", ">", self.theta, v.at_parent(self.score(top)), close, far)

    def emits_argmax(self, sampling: Sampling) -> bool:
        """The emitted token is always the target's argmax."""
        return sampling.greedy

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        """Weights [B, V] in the context of node [B], where the argmax is not simply taken."""
        return residual(v, node)

    @abstractmethod
    def sides(self, v: Verification, in_top2: Tensor, lossless: Tensor) -> tuple[Tensor, Tensor]:
        """[B, N] bool: which nodes are kept in a close context, and which in any other; `in_top2` marks the nodes whose
        token is v1 or v2, `lossless` what the lossless test accepts."""

    def top(self, v: Verification) -> tuple[Tensor, Tensor]:
        """The two largest logits of each context and their tokens, both [B, N, 2]."""
        return v.top2

    def score(self, top: Tensor) -> Tensor:
        """The indicator: two largest logits [..., 2] -> [...]; -inf where it has no meaning."""
        z1, z2 = top.unbind(-1)
        match self.indicator:
            case "prob_ratio":
                return (z2 - z1).exp()
            case "logit_margin":
                return 1.0 - (z1 - z2)
            case _:
                return self.ratio(z1, z2)

    def ratio(self, z1: Tensor, z2: Tensor) -> Tensor:
        """z2/z1, and -inf for z1 <= 0."""
        return torch.where(z1 > 0, z2 / z1, -torch.inf)

    def test(self, v: Verification, lossless: Tensor) -> Tensor:
        """[B, N] bool: the lossless test with this rule's q_mode."""
        return lossless if self.q_mode == "exact" else lossless_test(v, self.q_mode)

    @staticmethod
    def _in_top2(v: Verification, ids: Tensor) -> Tensor:
        return (v.draft.tokens[..., None] == v.at_parent(ids)).any(-1)


class Algorithm1(Variant):
    """The paper's Algorithm 1. x = v1: accept. x = v2 and close: accept. Otherwise reject and emit v1, which is the
    bonus as well.

    Deterministic at every temperature: a run at T=1 stays close to greedy decoding, although Table 1 compares it with a
    sampling baseline. If both v1 and v2 are children, v1 wins."""

    def emits_argmax(self, sampling: Sampling) -> bool:
        return True

    def sides(self, v: Verification, in_top2: Tensor, lossless: Tensor) -> tuple[Tensor, Tensor]:
        return v.is_argmax | (in_top2 & ~v.any_sibling(v.is_argmax)), v.is_argmax


class RelaxedSampling(Variant):
    """The relaxation in front of the lossless test. x in {v1, v2} and close: accept. Every other case is the lossless
    rule unchanged, its emitted token included; theta >= 1 is exactly `lossless`."""

    def sides(self, v: Verification, in_top2: Tensor, lossless: Tensor) -> tuple[Tensor, Tensor]:
        test = self.test(v, lossless)
        return in_top2 | test, test


class Released(Variant):
    """What the authors' repository (5SSjw/MARS) does.

    T=0: greedy matching, no relaxation. T>0, with z the *processed* logits and r = z2/(z1 + 1e-10): in a close context
    accept the first child in {v1, v2} and skip the others untested; if none is there, draw from the unmodified p.
    Elsewhere the lossless test with this rule's q_mode, the repository's being `draft` (min(1, p/q) for deterministic
    candidates). Two negative logits have r >= 1 and always relax."""

    def decide(self, v: Verification) -> Decision:
        return Decision(v.is_argmax) if v.sampling.greedy else super().decide(v)

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        return None if v.sampling.greedy else super().threshold_view(v)

    def sides(self, v: Verification, in_top2: Tensor, lossless: Tensor) -> tuple[Tensor, Tensor]:
        return in_top2, self.test(v, lossless)

    def top(self, v: Verification) -> tuple[Tensor, Tensor]:
        values, ids = torch.topk(v.processed, 2, dim=-1)
        return values, ids

    def ratio(self, z1: Tensor, z2: Tensor) -> Tensor:
        return z2 / (z1 + EPSILON)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        close = self.score(torch.topk(v.at(v.processed, node), 2, dim=-1).values) > self.theta
        return torch.where(close[:, None], v.p_at(node), residual(v, node))


VARIANTS: dict[str, type[Variant]] = {"algorithm1": Algorithm1, "sampling": RelaxedSampling, "released": Released}
