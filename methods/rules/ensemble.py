"""Ensemble: sample from a mixture of target and draft instead of from the target, fixed or along a schedule.

    accept x  iff  u < (1 - w) + w p(x)/q(x);   rejected: norm(max(0, p - q));   bonus: p

p and q are the processed distributions in the context of x. With pi = w p + (1 - w) q the test is u < pi(x)/q(x) and
max(0, pi - q) = w max(0, p - q): the emitted token has exactly the distribution pi, the bonus that of p. w = 1 is
lossless; no other value is. w = 0 accepts every draft (always-accept): the target decides the bonus alone. `random`
with rate=1 is the same for drafters without a distribution.

variant  at temperature 0
  graphcore     greedy matching.
  transformers  m = argmax of w softmax(z) + (1 - w) softmax(z_draft), raw logits; accept x iff x = m; emit m after a
                rejection and the target's argmax as the bonus. Strict at w = 1 only.

w_first    w at the answer's first token, if not null; then w(t), with t the place of the token in the answer, goes to
           `w` at t = tokens, evenly or (schedule=step) all at once. pi is that of w(t).

DIVERSED learns a w for every context by reinforcement; the schedule is what changes w here without training. With
w_first=1 it is SecureSD on always-accept.
Source: DIVERSED (arXiv 2604.07622; comeusr/diversed 31115a22); transformers >= 5.14, `assistant_ensemble_weight` (0 < w
< 1; None is lossless), `_speculative_sampling` of 5.23.0; graphcore-research/relaxed-spec-dec-repro c28353fe, `ens`
(arXiv 2607.08690; w 0.95, 0.9, 0.8).

In docs/rules.md
  accepts  `u < (1 - w) + w p(x)/q(x)`; `transformers` at T = 0: the argmax of the mixture
  reads    p, q; sampled chains
  emits    norm max(0, p - q), which is the mixture without q; `transformers` at T = 0: the argmax of the mixture
  strict   `w=1`: lossless
  source   transformers: `assistant_ensemble_weight=w`; DIVERSED (`w_first`: a schedule in place of its trained w);
           the study arXiv 2607.08690 (`ens`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from methods.rules._request import count_answered, place, ramp, start_count
from methods.rules.base import Decision, Sampling, State, ThresholdView, Verification, Walk
from methods.rules.lossless import ThresholdChain


class Ensemble(ThresholdChain):
    """w: weight of the target in the mixture. variant, w_first, tokens, schedule: as above."""

    variant: Literal["graphcore", "transformers"] = "graphcore"
    w: float = Field(0.9, ge=0.0, le=1.0)
    w_first: float | None = Field(None, ge=0.0, le=1.0, exclude_if=lambda w: w is None)  # unused: identity lacks it
    tokens: PositiveInt = Field(8, exclude_if=lambda tokens: tokens == 8)
    schedule: Literal["linear", "step"] = Field("linear", exclude_if=lambda schedule: schedule == "linear")

    @property
    def local(self) -> bool:  # type: ignore[override]  # a schedule counts the tokens of the answer
        return self.w_first is None

    def is_lossless(self, sampling: Sampling) -> bool:
        return (self.w == 1.0 and self.w_first in (None, 1.0)) or (sampling.greedy and self.variant == "graphcore")

    def start(self, rows: Sequence[Sequence[int]], device: torch.device) -> State:
        return {} if self.w_first is None else start_count(rows, device)

    def next_state(self, v: Verification, path: Walk, token: Tensor) -> State:
        return {} if self.w_first is None else count_answered(v, path)

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
        """Accepted iff u < p/q, or (1 - u)/(1 - p/q) > w, which is u < (1 - w) + w p/q; another w in a replay shifts a
        whole schedule."""
        score = (1.0 - v.u) / (1.0 - v.p_token / v.q_token) - (v.at_parent(self._w(v)) - self.w)
        return ThresholdView("w", ">", self.w, score, torch.ones_like(lossless), lossless)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if not self._mixes_argmax(v.sampling):
            return super().emit(v, node)
        w = v.at(self._w(v), node)
        best = self._mixture(v.at(v.logits, node), v.at(v.draft_logits, node), w).argmax(-1)
        best = torch.where(v.children_of(node).any(1), best, v.at(v.argmax, node))
        return torch.zeros_like(v.logits[:, 0]).scatter_(-1, best[:, None], 1.0)

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
