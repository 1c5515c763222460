"""Speculative sampling, which is lossless, what other rules take of it, and three controls beside
it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Decision, Rule, Sampling, ThresholdView, Verification

QMode = Literal["exact", "draft"]


def lossless_test(v: Verification, q_mode: QMode = "exact") -> Tensor:
    """[B, N] bool: the lossless test of every node, given that its earlier siblings were
    rejected."""
    if v.sampling.greedy:
        return v.is_argmax
    if v.draft.sampled:
        return v.u * v.q_token < v.p_token if v.draft.chain else _accepts_siblings(v)
    return mass_test(v, q=v.q_token if q_mode == "draft" else None)


def mass_test(v: Verification, mass: float = 1.0, q: Tensor | None = None) -> Tensor:
    """[B, N] bool: u q(x) (mass - S) < p(x), given that the earlier siblings, of mass S, were
    rejected; q [B, N], or 1 if None."""
    p_token, earlier = sibling_mass(v)
    reach = v.u * (mass - earlier).clamp(min=0.0)
    return (reach if q is None else reach * q) < p_token


def sibling_mass(v: Verification) -> tuple[Tensor, Tensor]:
    """For each node the processed target probability of its token, 0 if an earlier sibling has the
    same one, and the sum of these over its earlier siblings (S above): both [B, N]."""
    p_token = v.p_token
    if v.draft.chain:
        return p_token, torch.zeros_like(p_token)
    repeated = (
        v.earlier_siblings & (v.draft.tokens[:, :, None] == v.draft.tokens[:, None, :])
    ).any(-1)
    # a token already rejected has no mass left
    p_token = p_token.masked_fill(repeated | ~v.draft.valid, 0.0)
    return p_token, (v.earlier_siblings.to(p_token.dtype) @ p_token[..., None])[..., 0]


def _accepts_siblings(v: Verification) -> Tensor:
    """One round per sibling rank: each node is tested in the round of its rank against what is left
    of its context.

    Of independent siblings p_r = max(0, p - c_r q)/Z_r with c_0 = 0, Z_0 = 1, c_(r+1) = c_r + Z_r
    and Z_r = sum max(0, p - c_r q): two numbers per context and rank instead of a distribution."""
    rank, accept = v.earlier_siblings.sum(-1), torch.zeros_like(v.draft.valid)
    rounds = range(v.draft.width or v.draft.nodes - 1)
    if v.draft.replacement:
        c, z = torch.zeros_like(v.u), torch.ones_like(v.u)
        for r in rounds:
            accept |= (rank == r) & (
                v.u * v.at_parent(z) * v.q_token < v.p_token - v.at_parent(c) * v.q_token
            )
            c = c + z
            z = (v.p - c[..., None] * v.q).clamp(min=0.0).sum(-1)
        return accept
    left = Remainder(v.p, v.q, torch.ones_like(v.p[..., 0]), replacement=False)
    for r in rounds:
        child, real = v.child(r)
        token = v.draft.tokens.gather(1, child)
        accept |= (rank == r) & (v.u < v.at_parent(left.reach(token)))
        left = left.reject(token, real)
    return accept


def residual(v: Verification, node: Tensor) -> Tensor:
    """[B, V] unnormalised: the mass of p that remains in the context of node [B] once all its
    children are rejected; p at a leaf."""
    p = v.p_at(node)
    if v.sampling.greedy:
        return p  # the argmax was not among the children, or it would have been accepted
    if not v.draft.sampled:
        return without_children(v, node, p)
    return (
        without_draft(v, node, p, p)
        if v.draft.chain
        else rejected(v, node, torch.ones_like(p[:, 0]))
    )


def without_children(v: Verification, node: Tensor, p: Tensor) -> Tensor:
    """p [B, V] without the tokens of the children of node [B]. p itself if rounding rejected the
    last child although no other token has mass (odds about 1e-7)."""
    left = p.scatter_reduce(
        1, v.draft.tokens, torch.where(v.children_of(node), 0.0, torch.inf), "amin"
    )
    return torch.where(left.sum(-1, keepdim=True) > 0, left, p)


def without_draft(v: Verification, node: Tensor, pi: Tensor, bonus: Tensor) -> Tensor:
    """Weights [B, V] in the context of node [B]: max(0, pi - q) where a child was rejected, `bonus`
    at a leaf.

    pi, bonus [B, V]; pi and q may be anything at a leaf. Where rounding leaves nothing of pi, pi
    itself."""
    left = (pi - v.q_at(node)).clamp(min=0.0)
    left = torch.where(left.sum(-1, keepdim=True) > 0, left, pi)
    return torch.where(v.children_of(node).any(1, keepdim=True), left, bonus)


@dataclass(frozen=True, slots=True)
class Remainder:
    """What rejections leave of contexts [...] over V tokens: m [..., V] of p, s [..., V] the
    distribution of the next child, alpha [...] the probability with which the path up to here may
    be kept (1 where that is settled, and then it stays 1). `replacement`: siblings are independent.

        child x: min(1, alpha m(x)/s(x));   rejected: r = max(0, alpha m - s),  m <- r / sum r,
        alpha <- sum r / (sum r + 1 - alpha)  (1 if 0/0);   without replacement s loses x and is
                                              renormalised
    """

    m: Tensor
    s: Tensor
    alpha: Tensor
    replacement: bool

    def reach(self, token: Tensor) -> Tensor:
        """[...] min(1, alpha M(x)/S(x)) of the tokens [...]."""
        m, s = (x.gather(-1, token[..., None])[..., 0] for x in (self.m, self.s))
        return (self.alpha * m / s).clamp(max=1.0)

    def reject(self, token: Tensor, real: Tensor) -> Remainder:
        """After the rejection of the child `token` [...], where there is one: `real` [...] bool."""
        left = (self.alpha[..., None] * self.m - self.s).clamp(min=0.0)
        total = left.sum(-1)
        whole = total + (1.0 - self.alpha)  # in this order: both terms may be tiny
        alpha = torch.where(whole > 0, total / whole, 1.0)
        m = torch.where((real & (total > 0))[..., None], left / total[..., None], self.m)
        s = self.s
        if not self.replacement:
            s = s.scatter(-1, token[..., None], 0.0)
            s = torch.where(real[..., None], s / s.sum(-1, keepdim=True), self.s)
        return Remainder(m, s, torch.where(real, alpha, self.alpha), self.replacement)


def rejected(v: Verification, node: Tensor, alpha: Tensor) -> Tensor:
    """[B, V] M in the context of node [B], entered with alpha [B], once all its children are
    rejected; p at a leaf."""
    children = v.children_of(node)
    count = children.cumsum(1)
    left = Remainder(v.p_at(node), v.q_at(node), alpha, v.draft.replacement)
    for rank in range(v.draft.width or v.draft.nodes - 1):
        which = children & (count == rank + 1)
        token = v.at(v.draft.tokens, which.long().argmax(1))
        left = left.reject(token, which.any(1))
    return left.m


class Lossless(Rule):
    """Speculative sampling: the emitted tokens follow the target's processed distribution p
    exactly.

    Source: Leviathan et al. 2023 and Chen et al. 2023 for one candidate; SpecInfer (Miao et al.
    2024) and EAGLE for siblings. In one context with children x_1, x_2, ... in draft order, r of
    them already rejected:

      sampled        children drawn independently from q.  p_0 = p,  p_(r+1) = norm(max(0, p_r -
                     q)), accept x with probability min(1, p_r(x)/q(x)); if all are rejected, draw
                     from the last p_r. Drawn without replacement, q loses each rejected child and
                     is renormalised: q_(r+1) = norm(q_r without x_r), and p_(r+1) = norm(max(0, p_r
                     - q_r)) with it (recursive rejection sampling, Jeon et al. 2024).
      deterministic  q is a point mass on x, so a rejected x loses all its mass: with S = p(x_1) +
                     ... + p(x_r) accept x with probability p(x)/(1 - S); if all are rejected, draw
                     from p without the children.

    q_mode (only matters for deterministic candidates):
      exact  as above.
      draft  accept with probability min(1, p(x)/(1 - S)/q(x)), q(x) = the draft probability of x,
             as in the repositories of MARS and ARC-Decode. A rejected x has p < q, so max(0, p - q)
             again removes all its mass. NOT lossless: x was not drawn from q. It raises acceptance
             and biases the output towards tokens that the draft prefers.

    At temperature 0 all of these reduce to greedy matching. Tests are `u < probability` with u in
    [0, 1): probability 0 never accepts, 1 always does. Shapes as in `Verification`: B rows, N
    nodes, V tokens.

    q_mode: how deterministic candidates are tested (see above); "draft" is a biased control, not a
    method."""

    q_mode: QMode = "exact"

    def needs_q(self, sampling: Sampling) -> bool:
        return self.q_mode == "draft" and not sampling.greedy

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.q_mode == "exact"

    def decide(self, v: Verification) -> Decision:
        lossless = lossless_test(v) if self.q_mode == "draft" else None
        return Decision(lossless_test(v, self.q_mode), lossless)

    def by_threshold(self, v: Verification) -> Tensor:
        """False everywhere: the rule has no threshold; q_mode=draft biases the test itself."""
        return v.none

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return residual(v, node)

    def drawn_law(self, p: Tensor, q: Tensor) -> Tensor:
        return p


class ThresholdRule(Rule):
    """A rule whose decision is a function of one threshold; where it has no view, greedy
    matching."""

    @abstractmethod
    def threshold_view(self, v: Verification) -> ThresholdView | None: ...

    def decide(self, v: Verification) -> Decision:
        view = self.threshold_view(v)
        return Decision(v.is_argmax if view is None else view.kept, lossless_test(v))


class WarmRule(Rule):
    """Greedy matching at temperature 0, `warm_test` above it."""

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy

    def strict_test(self, v: Verification) -> Tensor:
        """[B, N] bool: the lossless test that `warm_test` is compared with."""
        return lossless_test(v)

    def decide(self, v: Verification) -> Decision:
        if v.sampling.greedy:
            return Decision(v.is_argmax)
        lossless = self.strict_test(v)
        return Decision(self.warm_test(v, lossless), lossless)

    def by_threshold(self, v: Verification) -> Tensor:
        """Accepted, and not by the lossless test."""
        decision = self.decide(v)
        return decision.accept & ~decision.lossless

    @abstractmethod
    def warm_test(self, v: Verification, lossless: Tensor) -> Tensor:
        """[B, N] bool: the decision above temperature 0; `lossless` [B, N] is that of the lossless
        test."""


class WarmThreshold(WarmRule):
    """Greedy matching at temperature 0, a function of one threshold above it."""

    @abstractmethod
    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        """`threshold_view` above temperature 0; `lossless` [B, N] is the decision of the lossless
        test."""

    def warm_test(self, v: Verification, lossless: Tensor) -> Tensor:
        return self.view(v, lossless).kept

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        return None if v.sampling.greedy else self.view(v, self.strict_test(v))


class DrawnRule(Rule):
    """A rule for one chain of tokens drawn from q. It emits what `lossless` emits, or, where it
    samples towards a distribution pi other than p, `without_draft`."""

    chain_only = True
    sampled_only = True

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return residual(v, node)


def draft_p(v: Verification) -> Tensor:
    """[B, N] the probability with which each node's token was drafted: q(x), or 1 for a
    deterministic candidate."""
    return v.q_token if v.draft.sampled else torch.ones_like(v.p_token)


class Greedy(Rule):
    """Greedy verification: accept the token that the target itself would emit at temperature 0.

        accept x  iff  x = argmax_v z(v);   correction and bonus: argmax_v z(v)

    z are the raw target logits in the context of x's parent, the first one of a tie. Output equals
    autoregressive greedy decoding token by token (in float32; lower precisions round differently
    for different matrix shapes). Source: exact-match verification, e.g. MARS eq. 1. No options, no
    random numbers, no draft distribution."""

    greedy_only = True

    def is_lossless(self, sampling: Sampling) -> bool:
        return True

    def decide(self, v: Verification) -> Decision:
        return Decision(v.is_argmax)


class Random(Rule):
    """Random acceptance: a control that shows whether it matters *which* draft tokens are accepted.

        accept x  iff  u < rate;   correction and bonus: draw from the target's processed
                  distribution p

    u is uniform in [0, 1), one number per node. Source: FSD, Appendix E and Figure 6 ("random FSD
    baseline"). On a tree each sibling is tried in turn, so a context with k children goes on with
    probability 1 - (1 - rate)^k.

    rate: probability with which a draft token is accepted, whatever it is."""

    rate: float = Field(0.5, ge=0.0, le=1.0)

    def decide(self, v: Verification) -> Decision:
        return Decision(v.u < self.rate, lossless_test(v))


class Threshold(WarmThreshold):
    """SGLang's acceptance thresholds: accept a likely token without a draw; draw against a part of
    the mass.

    In one context with children x_1, x_2, ... in draft order and S_j = p(x_1) + ... + p(x_j), each
    tested with its own u:

        accept x_j  iff  p(x_j) >= single  or  u < p(x_j)/(acc - S_(j-1));   bonus: p
        all rejected: draw from p without the children

    p is the processed target distribution. A repeated sibling has lost its mass. Defined for chains
    and trees and for any candidates: the draft's probabilities are never used, so a token drawn
    from q is accepted with probability p(x), not min(1, p(x)/q(x)); whether a token counts as
    relaxed is decided by the lossless test without q, too. SGLang draws one number for all
    siblings, coin <= S_j/acc, which gives the same probabilities.

    single = acc = 1 is lossless, for sampled candidates too; no other setting is. At temperature 0:
    greedy matching, whatever the thresholds. Source:
    sgl-kernel/csrc/speculative/speculative_sampling.cuh 120affb9,
    TreeSpeculativeSamplingTargetOnly.

    single: probability from which a token is accepted without a draw. acc: the mass that is drawn
    against."""

    single: float = Field(1.0, ge=0.0, le=1.0)
    acc: float = Field(1.0, ge=1e-9, le=1.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.single == self.acc == 1.0

    def strict_test(self, v: Verification) -> Tensor:
        return mass_test(v)

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        return self.threshold_on("single", ">=", sibling_mass(v)[0], mass_test(v, self.acc))

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return v.p_at(node) if v.sampling.greedy else without_children(v, node, v.p_at(node))
