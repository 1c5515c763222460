"""Tilted acceptance: the most tokens for the least divergence from the target, on any draft.

In every context it draws the next token from the law R that maximises, over what one draft may keep,

    E[tokens kept] - lam * sum of KL(R || p) over the contexts that are visited          lam in tokens a nat

Deterministic candidates: a soft dynamic programme from the leaves up, V = 0 at a leaf, S = sum of the children's p:

    V(c) = lam ln( sum_i p(x_i) exp((1 + V(x_i))/lam) + 1 - S ),   R(x_i | c) = p(x_i) exp((1 + V(x_i) - V(c))/lam)

and the other tokens with p(y) exp(-V(c)/lam). A chain of candidates drawn from q, token by token: at most min(q, R) of
the mass can be kept, and

    R(y) = min(max(c p(y), q(y)), c p(y) exp(1/lam)),   c from sum R = 1

is attained by speculative sampling towards R: keep x with min(1, R(x)/q(x)), else draw from norm max(0, R - q). What a
kept token makes possible further down is not counted there (block verification keeps more at lam = infinity).
lam = infinity is lossless, lam -> 0 keeps the longest path, or every drawn token. At temperature 0: greedy matching.
For one drawn token the trade of rejection against total variation is Yin et al. 2024 (arXiv 2411.00841), Theorem 5.

In docs/rules.md
  accepts  `u (1 - R of the earlier siblings) < R(x)`; drawn: `u q(x) < R(x)`; R = p tilted towards what is drafted
  reads    p, also of the nodes behind; q of drawn candidates; trees and chains
  emits    p without the children; drawn: norm max(0, R - q)
  strict   `lam` to infinity: lossless
  source   this project: the limit of the trade between accept length and distortion
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Decision, DraftCapabilities, Rule, Sampling, Verification
from methods.rules.lossless import lossless_test, residual, sibling_mass, without_draft

HALVINGS, LARGEST = 30, 60.0
"""Steps of the bisection for c; largest exponent of a gain."""


class Tilted(Rule):
    """lam: tokens that one nat of divergence must bring."""

    local: ClassVar[bool] = False
    lam: float = Field(1.0, gt=0.0)

    def has_law(self) -> bool:
        return True

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if candidates.sampled and not candidates.chain and not sampling.greedy:
            raise ValueError("rule=tilted is defined for chains of drawn tokens and for deterministic trees, and "
                             f"drafter={candidates.drafter} draws trees: use drafter=model or eagle3, or rule=lossless")

    def decide(self, v: Verification) -> Decision:
        if v.sampling.greedy:
            return Decision(v.is_argmax)
        if v.draft.sampled:
            law = tilted(v.p, v.q, self.lam)
            return Decision(v.u * v.q_token < v.of_token(law), lossless_test(v))
        share = shares(v, self.lam)
        earlier = (v.earlier_siblings.double() @ share[..., None])[..., 0]
        return Decision(v.u.double() * (1.0 - earlier).clamp(min=0.0) < share, lossless_test(v))

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if v.sampling.greedy or not v.draft.sampled:
            return residual(v, node)
        p = v.p_at(node)
        law = tilted(p, v.sampling.probs(v.at(v.draft_logits, node)), self.lam)
        return without_draft(v, node, law, p)

    def drawn_law(self, p: Tensor, q: Tensor) -> Tensor:
        return tilted(p, q, self.lam)


def shares(v: Verification, lam: float) -> Tensor:
    """[B, N] float64: R(x_i | c) of each node's token in its context, 0 at the root and in padding."""
    children = v.draft.valid & (v.draft.depth > 0)
    p = sibling_mass(v)[0].double().masked_fill(~children, 0.0)
    rest = (1.0 - torch.zeros_like(p).scatter_add(1, v.parent, p)).clamp(min=1e-12)
    value, weight = torch.zeros_like(p), torch.full_like(p, -torch.inf)
    for depth in range((v.draft.levels or v.draft.nodes) - 1, 0, -1):
        weight = torch.where(v.draft.depth == depth, p.log() + (1.0 + value) / lam, weight)
        largest = rest.log().scatter_reduce(1, v.parent, weight, "amax")  # for a sum of exponentials that fits
        total = (rest.log() - largest).exp().scatter_add(1, v.parent, (weight - largest.gather(1, v.parent)).exp())
        value = torch.where(v.draft.depth == depth - 1, lam * (largest + total.log()), value)
    return (weight - value.gather(1, v.parent) / lam).exp()


def tilted(p: Tensor, q: Tensor, lam: float) -> Tensor:
    """R [..., V] for one token drawn from q, in the numeric type of p and q [..., V]."""
    gain = min(1.0 / lam, LARGEST)
    low = torch.full_like(p[..., :1], -gain - 1.0)
    high = torch.ones_like(low)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = _bounded(p, q, middle, gain).sum(-1, keepdim=True) <= 1.0
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    law = _bounded(p, q, low, gain)
    return law / law.sum(-1, keepdim=True)


def _bounded(p: Tensor, q: Tensor, log_c: Tensor, gain: float) -> Tensor:
    return torch.minimum(torch.maximum(log_c.exp() * p, q), (log_c + gain).exp() * p)
