"""Rules for tokens drawn from the draft that sample from a distribution other than the target's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from methods.rules.base import (
    Decision,
    DraftCapabilities,
    Sampling,
    State,
    ThresholdView,
    Verification,
    Walk,
)
from methods.rules.lossless import DrawnRule, WarmRule, WarmThreshold, lossless_test, without_draft
from methods.rules.placed import CountingRule, place, ramp


class Ensemble(CountingRule, DrawnRule, WarmThreshold):
    """Ensemble: sample from a mixture of target and draft instead of from the target, fixed or
    along a schedule.

        accept x  iff  u < (1 - w) + w p(x)/q(x);   rejected: norm(max(0, p - q));   bonus: p

    p and q are the processed distributions in the context of x. With pi = w p + (1 - w) q the test
    is u < pi(x)/q(x) and max(0, pi - q) = w max(0, p - q): the emitted token has exactly the
    distribution pi, the bonus that of p. w = 1 is lossless; no other value is. w = 0 accepts every
    draft (always-accept): the target decides the bonus alone. `random` with rate=1 is the same for
    drafters without a distribution.

    variant  at temperature 0
      graphcore     greedy matching.
      transformers  m = argmax of w softmax(z) + (1 - w) softmax(z_draft), raw logits; accept x iff
                    x = m; emit m after a rejection and the target's argmax as the bonus. Strict at
                    w = 1 only.

    w_first    w at the answer's first token, if not null; then w(t), with t the place of the token
               in the answer, goes to `w` at t = tokens, evenly or (schedule=step) all at once. pi
               is that of w(t).

    DIVERSED learns a w for every context by reinforcement; the schedule is what changes w here
    without training. With w_first=1 it is SecureSD on always-accept. Source: DIVERSED (arXiv
    2604.07622; comeusr/diversed 31115a22); transformers >= 5.14, `assistant_ensemble_weight` (0 < w
    < 1; None is lossless), `_speculative_sampling` of 5.23.0;
    graphcore-research/relaxed-spec-dec-repro c28353fe, `ens` (arXiv 2607.08690; w 0.95, 0.9, 0.8).

    w: weight of the target in the mixture."""

    variant: Literal["graphcore", "transformers"] = "graphcore"
    w: float = Field(0.9, ge=0.0, le=1.0)
    # unused: identity lacks it
    w_first: float | None = Field(None, ge=0.0, le=1.0, exclude_if=lambda w: w is None)
    tokens: PositiveInt = Field(8, exclude_if=lambda tokens: tokens == 8)
    schedule: Literal["linear", "step"] = Field(
        "linear", exclude_if=lambda schedule: schedule == "linear"
    )

    def is_memoryless(self) -> bool:
        """Whether there is no schedule, which counts the tokens of the answer."""
        return self.w_first is None

    def is_lossless(self, sampling: Sampling) -> bool:
        return (self.w == 1.0 and self.w_first in (None, 1.0)) or (
            sampling.greedy and self.variant == "graphcore"
        )

    def start(self, rows: Sequence[Sequence[int]], device: torch.device) -> State:
        return {} if self.w_first is None else super().start(rows, device)

    def next_state(self, v: Verification, path: Walk, token: Tensor) -> State:
        return {} if self.w_first is None else super().next_state(v, path, token)

    def needs_q(self, sampling: Sampling) -> bool:
        return self._mixes_argmax(sampling)

    def emits_argmax(self, sampling: Sampling) -> bool:
        return sampling.greedy and not self._mixes_argmax(sampling)

    def decide(self, v: Verification) -> Decision:
        if not self._mixes_argmax(v.sampling):
            return super().decide(v)
        best = self._mixture(v.logits, v.draft_logits, self._w(v)).argmax(-1)
        return Decision(v.draft.tokens == v.at_parent(best), v.is_argmax)

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        """Accepted iff u < p/q, or (1 - u)/(1 - p/q) > w, which is u < (1 - w) + w p/q; another w
        in a replay shifts a whole schedule."""
        score = (1.0 - v.u) / (1.0 - v.p_token / v.q_token) - (v.at_parent(self._w(v)) - self.w)
        return self.threshold_on("w", ">", score, lossless)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if not self._mixes_argmax(v.sampling):
            return super().emit(v, node)
        w = v.at(self._w(v), node)
        best = self._mixture(v.at(v.logits, node), v.at(v.draft_logits, node), w).argmax(-1)
        best = torch.where(v.children_of(node).any(1), best, v.at(v.argmax, node))
        return v.one_hot(best)

    def _mixes_argmax(self, sampling: Sampling) -> bool:
        return sampling.greedy and self.variant == "transformers"

    def _w(self, v: Verification) -> Tensor:
        """[B, N] the target's weight in each context."""
        if self.w_first is None:
            return torch.full_like(v.u, self.w)
        return ramp(place(v), self.schedule, self.w_first, self.w, self.tokens)

    @staticmethod
    def _mixture(logits: Tensor, draft_logits: Tensor, w: Tensor) -> Tensor:
        return w[..., None] * logits.softmax(-1) + (1.0 - w[..., None]) * draft_logits.softmax(-1)


class CascadeTok(DrawnRule, WarmRule):
    """Speculative cascade with the token-specific deferral rule: keep a drafted token that is near
    the target's best.

    variant
      blend          A = {v : z(v) >= max z + ln(1 - alpha)}, eta = sum of q outside A, pi = q on A,
                     plus eta p everywhere: accept x iff u < min(1, pi(x)/q(x));   rejected:
                     norm(max(0, pi - q));   bonus: p. The emitted token has exactly the
                     distribution pi. alpha = 0 keeps only the first argmax in A, alpha = 1
                     everything that z leaves (all: pi = q).
      lossless_tail  accept x iff p(x) >= (1 - alpha) max_v p(v) (ties included, even at alpha = 0)
                     or the lossless test accepts it;   rejected: norm(max(0, p - q));   bonus: p

    NO setting is lossless. blend at alpha = 0 gives the argmax q + eta p in place of p, and off A
    it is stricter than the lossless test (eta <= 1): it relaxes and loses accepted tokens at once.
    lossless_tail at alpha = 0 still accepts the argmax always. At temperature 0: greedy matching.

    top_set (blend)
      paper          z are the raw logits of the target, before temperature, top-k and top-p.
      processed      z are its processed logits.

    Source: Narasimhan et al. 2024, "Faster Cascades via Speculative Decoding", section 4.4;
    graphcore-research/relaxed-spec-dec-repro c28353fe, `spec-casc-tok` (arXiv 2607.08690; alpha 0,
    0.35, 0.8, top_set paper); lossless_tail: `tok_lt` of chiatzenw-cur/lossy-token-eff 16b878fc
    (default 0.3, recommended 0.15 to 0.2).

    alpha: how far below the target's best a token may stand."""

    variant: Literal["blend", "lossless_tail"] = "blend"
    alpha: float = Field(0.35, ge=0.0, le=1.0)
    top_set: Literal["paper", "processed"] = "paper"

    def warm_test(self, v: Verification, lossless: Tensor) -> Tensor:
        if self.variant == "lossless_tail":
            return lossless | (self._below(v) <= self.alpha)
        return v.u * v.q_token < v.of_token(self._pi(v.logits, v.p, v.q, v))

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        """lossless_tail: the share by which p(x) is below the largest. blend: None, since alpha
        also decides eta."""
        if self.variant == "blend" or v.sampling.greedy:
            return None
        return self.threshold_on("alpha", "<=", self._below(v), lossless_test(v))

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if self.variant == "lossless_tail" or v.sampling.greedy:
            return super().emit(v, node)
        p, q = v.p_at(node), v.q_at(node)
        return without_draft(v, node, self._pi(v.at(v.logits, node), p, q, v), p)

    @staticmethod
    def _below(v: Verification) -> Tensor:
        return 1.0 - v.p_token / v.at_parent(v.p.amax(-1))

    def _pi(self, logits: Tensor, p: Tensor, q: Tensor, v: Verification) -> Tensor:
        """[..., V] from the contexts' raw target logits, p and q, all [..., V]."""
        z = logits if self.top_set == "paper" else v.sampling.process(logits)
        if self.alpha == 0.0:
            top = torch.zeros_like(z, dtype=torch.bool).scatter_(
                -1, z.argmax(-1, keepdim=True), True
            )
        else:
            top = z >= z.amax(-1, keepdim=True) + (
                math.log1p(-self.alpha) if self.alpha < 1.0 else -math.inf
            )
            top &= z > -math.inf  # what top-k or top-p removed is in no set, at alpha = 1 either
        kept = torch.where(top, q, 0.0)
        return kept + (q - kept).sum(-1, keepdim=True) * p


class Contrastive(DrawnRule, WarmRule):
    """Speculative contrastive decoding: sample from the target's logits with the draft's
    subtracted.

        pi = softmax(((1 + beta) z - beta z_draft)/T_c) on the tokens of the gate, 0 elsewhere
        accept x  iff  u < min(1, pi(x)/q(x));   rejected: norm(max(0, pi - q));   bonus: pi

    z and z_draft are raw logits in the context of x, q the processed draft distribution; T_c is
    `temperature`, or the sampling temperature. Every emitted token has exactly the distribution pi,
    the bonus too, for which the drafter reads the last drafted token: one more of its forwards per
    cycle. beta = 0 with T_c = T and gate = support is lossless; no other setting is. Temperature 0
    is refused: the source defines no greedy form. Traces have no replay: a token can pass at some
    beta and fail at smaller and at larger ones.

    gate
      support    tokens with p(v) > 0, p being the processed target distribution.
      plausible  tokens with z(v) >= max z + T ln alpha, T the sampling temperature.

    Source: graphcore-research/relaxed-spec-dec-repro c28353fe, `spec-cont-dec` (arXiv 2607.08690;
    beta 0.1, 0.5, 1; its README calls the code's beta alpha); Yuan et al. 2023, "Speculative
    Contrastive Decoding".

    beta: weight of the draft's logits. temperature: T_c; null for the sampling temperature. alpha:
    of the plausible gate."""

    beta: float = Field(0.5, ge=0.0)
    temperature: float | None = Field(None, gt=0.0)
    gate: Literal["support", "plausible"] = "support"
    alpha: float = Field(0.1, gt=0.0, le=1.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return (
            self.beta == 0.0
            and self.gate == "support"
            and self.temperature in (None, sampling.temperature)
        )

    def bonus_needs_q(self, sampling: Sampling) -> bool:
        return True

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        if sampling.greedy:
            raise ValueError(
                "rule=contrastive is defined for sampling, not for temperature 0: set "
                "decoding.temperature above 0 or take another rule"
            )
        super().check(candidates, sampling)
        if not candidates.full_vocabulary:
            raise ValueError(
                "rule=contrastive subtracts the draft's logits, and the vocabulary of drafter="
                f"{candidates.drafter} is reduced: use drafter=model or early_exit"
            )

    def warm_test(self, v: Verification, lossless: Tensor) -> Tensor:
        return v.u * v.q_token < v.of_token(self._pi(v.logits, v.draft_logits, v.p, v.sampling))

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        pi = self._pi(v.at(v.logits, node), v.at(v.draft_logits, node), v.p_at(node), v.sampling)
        return without_draft(v, node, pi, pi)

    def _pi(self, logits: Tensor, draft_logits: Tensor, p: Tensor, sampling: Sampling) -> Tensor:
        """[..., V] from the contexts' raw logits of both models and the processed p, all [...,
        V]."""
        if self.gate == "support":
            gate = p > 0
        else:
            gate = logits >= logits.amax(-1, keepdim=True) + sampling.temperature * math.log(
                self.alpha
            )
        mixed = (1.0 + self.beta) * logits - self.beta * draft_logits
        return (
            (mixed / (self.temperature or sampling.temperature))
            .masked_fill(~gate, -torch.inf)
            .softmax(-1)
        )


STEPS = 10


class Mentored(DrawnRule, WarmRule):
    """Mentored decoding: the distribution that accepts most drafts within a KL budget of the
    target's.

    With r(v) = p(v)/q(v) the emitted token has the distribution

        pi(v) = p(v)/alpha  where r(v) <= alpha,   p(v)/beta  where r(v) > beta,   q(v)  between
                            alpha <= 1 <= beta
        accept x  iff  u q(x) < pi(x);   rejected: norm(max(0, pi - q));   bonus: p

    beta is what makes pi sum to 1. alpha is the smallest for which KL(p || pi) keeps to `budget`
    (nats a token), by bisection: `STEPS` halvings of [0, 1], which end where the divergence is
    within `tolerance` of the budget, else the last alpha below it, else 1. Where KL(p || q) <= (1 +
    tolerance) budget everything is accepted: pi = q. p and q are the processed distributions in the
    context of x.

    budget = 0 is lossless; no other value is. At temperature 0: greedy matching.
    Source: V. Tran-Thien, "A provably optimal lossy variant of speculative decoding";
    vivien000/mentored_decoding de72a1fc, notebook (budget as `target_dkl`, tolerance 0.2, 10
    halvings). There pi does not quite sum to 1, since beta counts a token too many into the upper
    set. Not `lossy`, which the study arXiv 2607.08690 calls mentored-dec.

    budget: largest KL(p || pi) of a token, in nats. tolerance: by how much of it the bisection may
    miss it."""

    budget: float = Field(0.2, ge=0.0)
    tolerance: float = Field(0.2, ge=0.0, lt=1.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.budget == 0.0

    def warm_test(self, v: Verification, lossless: Tensor) -> Tensor:
        return (
            lossless
            if self.budget == 0.0
            else lossless | (v.u * v.q_token < v.of_token(self.pi(v.p, v.q)))
        )

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if v.sampling.greedy or self.budget == 0.0:
            return super().emit(v, node)
        p, q = v.p_at(node), v.q_at(node)
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
            below = torch.where(divergence > high, middle, below)
            above = torch.where(divergence < low, middle, above)
        beta = masses.beta(alpha)
        pi = torch.where(
            masses.ratio <= alpha, p / alpha, torch.where(masses.ratio > beta, p / beta, q.double())
        )
        return torch.where(masses.total <= high, q, pi.to(p.dtype))


class _Masses:
    """Sums over the tokens of each context in the order of their ratio r = p/q; p and q [..., V]
    float64.

    ratio  [..., V], 0 where p is 0.
    total  [..., 1] KL(p || q).
    """

    def __init__(self, p: Tensor, q: Tensor):
        p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
        self.ratio = torch.where(p > 0, p / q, 0.0)
        self.ordered, order = self.ratio.sort(-1)
        self.p, self.q, self.kl = (
            _prefix(x.gather(-1, order)) for x in (p, q, torch.xlogy(p, self.ratio))
        )
        self.total = self.kl[..., -1:]
        self.p_behind, self.q_behind = ((x[..., -1:] - x).clamp(min=0.0) for x in (self.p, self.q))
        # of pi over q at beta = r
        self.excess = self.p_behind[..., :-1] / self.ordered - self.q_behind[..., :-1]

    def _sums(self, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[..., 1] numbers of tokens with r <= alpha and with r <= beta, and beta."""
        lower = torch.searchsorted(self.ordered, alpha, right=True)
        rejected = (self.q.gather(-1, lower) - self.p.gather(-1, lower) / alpha).clamp(min=0.0)
        upper = torch.searchsorted(-self.excess, -rejected).clamp(max=self.ordered.shape[-1] - 1)
        beta = self.p_behind.gather(-1, upper) / (rejected + self.q_behind.gather(-1, upper))
        return lower, upper, beta

    def beta(self, alpha: Tensor) -> Tensor:
        return self._sums(alpha)[2]

    def divergence(self, alpha: Tensor) -> Tensor:
        """[..., 1] KL(p || pi) with this alpha and the beta that goes with it."""
        lower, upper, beta = self._sums(alpha)
        between = self.kl.gather(-1, upper) - self.kl.gather(-1, lower)
        return (
            torch.xlogy(self.p.gather(-1, lower), alpha)
            + between
            + self.p_behind.gather(-1, upper) * beta.log()
        )


def _prefix(x: Tensor) -> Tensor:
    """[..., V + 1] sums of the first 0, 1, ... entries."""
    return torch.cat([torch.zeros_like(x[..., :1]), x.cumsum(-1)], -1)
