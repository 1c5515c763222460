"""Mentored decoding: the distribution that accepts most drafts within a KL budget of the target's.

With r(v) = p(v)/q(v) the emitted token has the distribution

    pi(v) = p(v)/alpha  where r(v) <= alpha,    p(v)/beta  where r(v) > beta,    q(v)  between        alpha <= 1 <= beta
    accept x  iff  u q(x) < pi(x);   rejected: norm(max(0, pi - q));   bonus: p

beta is what makes pi sum to 1. alpha is the smallest for which KL(p || pi) keeps to `budget` (nats a token), by
bisection: `STEPS` halvings of [0, 1], which end where the divergence is within `tolerance` of the budget, else the last
alpha below it, else 1. Where KL(p || q) <= (1 + tolerance) budget everything is accepted: pi = q. p and q are the
processed distributions in the context of x.

budget = 0 is lossless; no other value is. At temperature 0: greedy matching.
Source: V. Tran-Thien, "A provably optimal lossy variant of speculative decoding"; vivien000/mentored_decoding de72a1fc,
notebook (budget as `target_dkl`, tolerance 0.2, 10 halvings). There pi does not quite sum to 1, since beta counts a
token too many into the upper set. Not `lossy`, which the study arXiv 2607.08690 calls mentored-dec.

In docs/rules.md
  accepts  `u q(x) < pi(x)`, pi = p/alpha, q or p/beta by p/q, with `KL(p || pi)` at the budget
  reads    p, q; sampled chains
  emits    norm max(0, pi - q)
  strict   `budget=0`: lossless
  source   mentored decoding: vivien000/mentored_decoding
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Sampling, Verification
from methods.rules.lossless import ChainRule, without_draft

STEPS = 10


class Mentored(ChainRule):
    """budget: largest KL(p || pi) of a token, in nats. tolerance: by how much of it the bisection may miss it."""

    budget: float = Field(0.2, ge=0.0)
    tolerance: float = Field(0.2, ge=0.0, lt=1.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.budget == 0.0

    def accept(self, v: Verification, lossless: Tensor) -> Tensor:
        return lossless if self.budget == 0.0 else lossless | (v.u * v.q_token < v.of_token(self.pi(v.p, v.q)))

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if v.sampling.greedy or self.budget == 0.0:
            return super().emit(v, node)
        p, q = v.p_at(node), v.sampling.probs(v.at(v.draft_logits, node))
        return without_draft(v, node, self.pi(p, q), p)

    def pi(self, p: Tensor, q: Tensor) -> Tensor:
        """[..., V] the emitted distribution, from p and q [..., V]."""
        masses = _Masses(p.double(), q.double())
        low, high = self.budget * (1 - self.tolerance), self.budget * (1 + self.tolerance)
        below, above = torch.zeros_like(masses.total), torch.ones_like(masses.total)
        alpha, done = above, torch.zeros_like(masses.total, dtype=torch.bool)
        for _ in range(STEPS):
            middle = (below + above) / 2
            divergence = masses.divergence(middle)
            alpha = torch.where(done | (divergence > high), alpha, middle)
            done = done | ((divergence >= low) & (divergence <= high))
            below, above = (torch.where(divergence > high, middle, below), torch.where(divergence < low, middle, above))
        beta = masses.beta(alpha)
        pi = torch.where(masses.ratio <= alpha, p / alpha, torch.where(masses.ratio > beta, p / beta, q.double()))
        return torch.where(masses.total <= high, q, pi.to(p.dtype))


class _Masses:
    """Sums over the tokens of each context in the order of their ratio r = p/q; p and q [..., V] float64.

    ratio  [..., V], 0 where p is 0.
    total  [..., 1] KL(p || q).
    """

    def __init__(self, p: Tensor, q: Tensor):
        p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
        self.ratio = torch.where(p > 0, p / q, 0.0)
        self.ordered, order = self.ratio.sort(-1)
        self.p, self.q, self.kl = (_prefix(x.gather(-1, order)) for x in (p, q, torch.xlogy(p, self.ratio)))
        self.total = self.kl[..., -1:]
        self.p_behind, self.q_behind = ((x[..., -1:] - x).clamp(min=0.0) for x in (self.p, self.q))
        self.excess = self.p_behind[..., :-1] / self.ordered - self.q_behind[..., :-1]  # of pi over q at beta = r

    def _sums(self, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[..., 1] numbers of tokens with r <= alpha and with r <= beta, and beta."""
        lower = torch.searchsorted(self.ordered, alpha, right=True)
        rejected = (self.q.gather(-1, lower) - self.p.gather(-1, lower) / alpha).clamp(min=0.0)
        upper = torch.searchsorted(-self.excess, -rejected).clamp(max=self.ordered.shape[-1] - 1)
        return lower, upper, self.p_behind.gather(-1, upper) / (rejected + self.q_behind.gather(-1, upper))

    def beta(self, alpha: Tensor) -> Tensor:
        return self._sums(alpha)[2]

    def divergence(self, alpha: Tensor) -> Tensor:
        """[..., 1] KL(p || pi) with this alpha and the beta that goes with it."""
        lower, upper, beta = self._sums(alpha)
        between = self.kl.gather(-1, upper) - self.kl.gather(-1, lower)
        return torch.xlogy(self.p.gather(-1, lower), alpha) + between + self.p_behind.gather(-1, upper) * beta.log()


def _prefix(x: Tensor) -> Tensor:
    """[..., V + 1] sums of the first 0, 1, ... entries."""
    return torch.cat([torch.zeros_like(x[..., :1]), x.cumsum(-1)], -1)
