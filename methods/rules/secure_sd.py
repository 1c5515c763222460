"""SecureSD: a relaxed rule mixed with the strict one, strict at the beginning of an answer.

    accept x  with probability  eta(t) a(x) + (1 - eta(t)) min(1, p(x)/q(x))
    rejected: drawn from the relaxed rule's distribution with probability eta(t), else from norm(max(0, p - q));
    bonus likewise, from the relaxed rule's or from p

a(x) is the relaxed rule's probability of accepting x, t the place of the token in its answer, from 0. The answer's
first token is drawn from p by the prefill, so t = 0 is always strict. One number tests both: below eta it is stretched
to [0, 1) for the relaxed rule, above it for the strict one. At temperature 0 the strict test is greedy matching.

eta  schedule=step    start_eta for t < tokens, end_eta from there on
     schedule=linear  in proportion to min(1, t/tokens) between the two;   power: to min(1, t/tokens)^gamma

Lossless where start_eta = end_eta = 0. Chains; the relaxed rule must decide each token from its own context, which
excludes FLy and BiLD.
Source: arXiv 2610.08678 (IEEE S&P 2027), Algorithm 2; YichiCS/Secure-Speculative-Decoding 750c4869,
verifier/fusion.py and eta.py: step from 0 to 1 with tokens 1 and 2, up to 8.

In docs/rules.md
  accepts  with probability `eta(t) a(x) + (1 - eta(t)) min(1, p(x)/q(x))`, a of another rule, eta = 0 for the first
           `tokens` tokens
  reads    what the other rule reads, p, q; chains; state of the request
  emits    what the other rule emits and the lossless residual, mixed by eta
  strict   `start_eta=0 end_eta=0`: lossless
  source   SecureSD, arXiv 2610.08678: `--eta_schedule`, `--eta_len`
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat
from torch import Tensor

from methods.rules._request import Ramp, count_answered, place, ramp, start_count
from methods.rules.base import Decision, Sampling, State, Verification, Walk
from methods.rules.either import Nested, Options, built
from methods.rules.lossless import lossless_test, residual

LARGEST = 1.0 - 2.0**-24
"""Below 1: rounding must not stretch a uniform number to it."""


class SecureSd(Nested):
    """relaxed: `name` of a rule and its options. schedule, start_eta, end_eta, tokens, gamma: as above."""

    chain_only: ClassVar[bool] = True
    local: ClassVar[bool] = False
    relaxed: Options = Field({"name": "lossy", "alpha": 0.3})
    schedule: Ramp = "step"
    start_eta: float = Field(0.0, ge=0.0, le=1.0)
    end_eta: float = Field(1.0, ge=0.0, le=1.0)
    tokens: NonNegativeInt = 2
    gamma: PositiveFloat = 1.0

    def model_post_init(self, _: Any) -> None:
        self._rules = (built(self.relaxed),)

    def is_lossless(self, sampling: Sampling) -> bool:
        return self.start_eta == self.end_eta == 0.0 or self._rules[0].is_lossless(sampling)

    def emits_argmax(self, sampling: Sampling) -> bool:
        return sampling.greedy and super().emits_argmax(sampling)

    def start(self, rows: Sequence[Sequence[int]], device: torch.device) -> State:
        return start_count(rows, device)

    def next_state(self, v: Verification, path: Walk, token: Tensor) -> State:
        return count_answered(v, path)

    def eta(self, v: Verification) -> Tensor:
        """[B, N] of the token that follows each node."""
        return ramp(place(v), self.schedule, self.start_eta, self.end_eta, self.tokens, self.gamma)

    def decide(self, v: Verification) -> Decision:
        eta = v.at_parent(self.eta(v))
        relaxed = v.u < eta
        stretched = copy.copy(v)  # what was computed of the draft stays
        stretched.u = torch.where(relaxed, v.u / eta, (v.u - eta) / (1.0 - eta)).clamp(max=LARGEST)
        decision, strict = self._rules[0].decide(stretched), lossless_test(stretched)
        return Decision(torch.where(relaxed, decision.accept, strict), lossless_test(v), decision.flags)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if self.emits_argmax(v.sampling):
            return super().emit(v, node)
        eta = v.at(self.eta(v), node)[:, None]
        relaxed, strict = self._rules[0].emit(v, node), residual(v, node)
        return eta * relaxed / relaxed.sum(-1, keepdim=True) + (1.0 - eta) * strict / strict.sum(-1, keepdim=True)
