"""Relaxed acceptance of production engines: keep a token of the target's top N whose probability is close to the top.

    accept x  iff  x is among the top_n likeliest tokens  and  p0(x) >= max p0 - delta;   correction and bonus: argmax

p0 is the target's raw softmax in the context of x (temperature 1, no top-k, no top-p). The rule is deterministic at
every temperature, the request's sampling is ignored: compare it with temperature 0.

span
  everywhere  for every token, as ROCm ATOM does.
  thinking    `delta` inside a thinking span, 0 outside, as TensorRT-LLM and MAX do. A request starts inside if its
              prompt holds the token `begin` (an `end` behind it is overlooked). After each block the tokens it emitted
              are scanned in order, begin opens the span and end closes it, from the next block on. The answer's first
              token, which belongs to no block, is scanned as well.

delta = 0 leaves the argmax, and exact ties with it among the top N; top_n = 1 is greedy matching. At temperature 0
these two are therefore lossless (top_n = 1 exactly, delta = 0 but for ties); above it no setting is. Chains only.

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

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor

from methods.rules.base import DraftCapabilities, Rule, ThresholdView
from methods.rules.lossless import lossless_test
from methods.rules.verification import State, Verification
from methods.rules.walk import Decision, Walk
from methods.sampling import Sampling

if TYPE_CHECKING:  # transformers is slow to import
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head


class RelaxedTopk(Rule):
    """Options of relaxed acceptance.

    top_n  N, the number of candidates.
    delta  largest distance to the top probability.
    span   everywhere or thinking, as above.
    begin  token id that opens a thinking span; only for span=thinking.
    end    token id that closes it.
    """

    chain_only: ClassVar[bool] = True
    local: ClassVar[bool] = False
    top_n: PositiveInt = 10
    delta: float = Field(0.6, ge=0.0, le=1.0)
    span: Literal["everywhere", "thinking"] = "everywhere"
    begin: NonNegativeInt | None = None
    end: NonNegativeInt | None = None

    def emits_argmax(self, sampling: Sampling) -> bool:
        return True

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy and self.top_n == 1

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.span == "thinking" and (self.begin is None or self.end is None or self.begin == self.end):
            raise ValueError(f"rule=relaxed_topk with span=thinking needs two tokens, not begin={self.begin} and "
                             f"end={self.end}: give rule.begin=ID rule.end=ID, or rule.span=everywhere")

    def bind(self, target: LanguageModel, model: LanguageModel | Head | None) -> RelaxedTopk:
        if self.span == "thinking" and max(self.begin or 0, self.end or 0) >= target.vocab_size:
            raise ValueError(f"rule=relaxed_topk: begin={self.begin} and end={self.end} must be token ids of "
                             f"{target.source}, whose vocabulary has {target.vocab_size} entries")
        return self

    def start(self, rows: Sequence[Sequence[int]], device: torch.device) -> State:
        """thinking: [B] bool, the request is inside a thinking span."""
        if self.span == "everywhere":
            return {}
        inside = [row[-1] == self.begin or (self.begin in row and row[-1] != self.end) for row in rows]
        return {"thinking": torch.tensor(inside, device=device)}

    def next_state(self, v: Verification, path: Walk, token: Tensor) -> State:
        if self.span == "everywhere":
            return {}
        assert self.begin is not None and self.end is not None, "check() refuses a span without its tokens"
        kept, depth = path.kept & (v.draft.depth > 0), v.draft.depth

        def last(which: int) -> Tensor:
            """[B] place in the block of the last such token; 0 if there is none."""
            in_draft = torch.where(kept & (v.draft.tokens == which), depth, 0).amax(1)
            return torch.where(token == which, path.length + 1, in_draft)

        begin, end = last(self.begin), last(self.end)
        return {"thinking": torch.where(begin == end, v.state["thinking"], begin > end)}

    def decide(self, v: Verification) -> Decision:
        near = self._in_top(v) & (self._distance(v) <= self.delta)
        return Decision(v.is_argmax | near, lossless_test(v))

    def threshold_view(self, v: Verification) -> ThresholdView:
        return ThresholdView("delta", "<=", self.delta, self._distance(v), v.is_argmax | self._in_top(v), v.is_argmax)

    def _in_top(self, v: Verification) -> Tensor:
        """[B, N] bool: the node's token is one of the top N at its parent; all that tie with the last count."""
        if self.top_n == 1:
            return v.is_argmax
        lowest = v.logits.topk(min(self.top_n, v.logits.shape[-1]), dim=-1).values[..., -1]
        return v.of_token(v.logits) >= v.at_parent(lowest)

    def _distance(self, v: Verification) -> Tensor:
        """[B, N] float64: max p0 - p0(x), in the span; outside only ties are at a finite distance, 0."""
        top = v.at_parent(v.logits.amax(-1) - v.log_mass).double()
        distance = top.exp() * -torch.expm1(-v.regret)
        if self.span == "everywhere":
            return distance
        return torch.where(v.state["thinking"][:, None] | (distance == 0), distance, torch.inf)
