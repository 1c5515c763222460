"""Relaxed acceptance of production engines: keep a token of the target's top N whose probability is close to the top.

    accept x  iff  x is among the top_n likeliest tokens  and  p0(x) >= max p0 - delta;   correction and bonus: argmax

p0 is the target's raw softmax in the context of x (temperature 1, no top-k, no top-p). The rule is deterministic at
every temperature, the request's sampling is ignored: compare it with temperature 0.

span
  everywhere  for every token, as ROCm ATOM does.
  thinking    `delta` inside a thinking span, 0 outside, as TensorRT-LLM and MAX do (`_request.py`: where a span is).

delta = 0 keeps the argmax and exact ties with it among the top N; top_n = 1 is greedy matching. No setting is lossless
above temperature 0. Chains only.

Sources, with the flag that switches it on and the values that go with it:
  relaxed_topk_trtllm  TensorRT-LLM, use_relaxed_acceptance_for_thinking; off by default (relaxed_topk 1, relaxed_delta
                       0), published examples 10/0.6 and 15/0.5; mtpKernels.cu 3585984b, mtp.py 23ee85ee
  relaxed_topk_max     Modular MAX, use_relaxed_acceptance_for_thinking; 10/0.6
  relaxed_topk_atom    ROCm ATOM, ATOM_ENABLE_RELAXED_MTP=1; 10/0.6 everywhere; rejection_sampler.py 03802ca1

In docs/rules.md
  accepts  among the `top_n` largest of p0 and `p0(x) >= max p0 - delta`, everywhere or in a thinking span
  reads    raw softmax; chains; state of the request
  emits    argmax z
  strict   `top_n=1`: greedy matching
  source   TensorRT-LLM and MAX: `use_relaxed_acceptance_for_thinking`; ATOM: `ATOM_ENABLE_RELAXED_MTP=1`
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from methods.rules._request import ThinkingRule, in_top
from methods.rules.base import Decision, Sampling, ThresholdView, Verification
from methods.rules.lossless import lossless_test


class RelaxedTopk(ThinkingRule):
    """top_n: N, the number of candidates. delta: largest distance to the top probability."""

    chain_only: ClassVar[bool] = True
    local: ClassVar[bool] = False
    top_n: PositiveInt = 10
    delta: float = Field(0.6, ge=0.0, le=1.0)

    def has_law(self) -> bool:
        return True

    def emits_argmax(self, sampling: Sampling) -> bool:
        return True

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy and self.top_n == 1

    def decide(self, v: Verification) -> Decision:
        near = in_top(v, self.top_n) & (self._distance(v) <= self.delta)
        return Decision(v.is_argmax | near, lossless_test(v))

    def threshold_view(self, v: Verification) -> ThresholdView:
        inside = v.is_argmax | in_top(v, self.top_n)
        return ThresholdView("delta", "<=", self.delta, self._distance(v), inside, v.is_argmax)

    def _distance(self, v: Verification) -> Tensor:
        """[B, N] float64: max p0 - p0(x), in the span; outside only ties are at a finite distance, 0."""
        top = v.at_parent(v.logits.amax(-1) - v.log_mass).double()
        distance = top.exp() * -torch.expm1(-v.regret)
        if self.span == "everywhere":
            return distance
        return torch.where(v.state["thinking"][:, None] | (distance == 0), distance, torch.inf)
