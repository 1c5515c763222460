"""Keep a token that the target ranks near its best: its share of the largest probability, or its own probability.

    accept x  iff  near(x), or the lossless test accepts it (greedy matching at temperature 0)
    near(x)   by=ratio        p0(x) / max p0 >= threshold      (the same as  max z - z(x) <= -ln threshold)
              by=probability  p0(x) >= threshold
              and, where they are given: x is among the target's `top_n` best;  x stands at place `from_position` of the
              draft or behind (from 0);  the answer has `after_tokens` tokens before the block;  neither x nor the
              target's argmax is one of `protected`;  the request is inside a thinking span

p0 is the target's raw softmax in the context of x (temperature 1, no filter), z its logits. Correction and bonus as in
`lossless`. The sources decode greedily; above temperature 0, where they stay strict, near(x) stands in front of the
lossless test here. Chains only. At temperature 0, top_n = 1 is greedy matching, as is threshold = 1 but for ties; no
setting is lossless above.

Sources, with the settings that go with them:
  AdaptiveSpec (arXiv 2609.02897)  by=ratio threshold=0.2; its kappa is chosen for each model and task. Its other half,
                                   the shape of the draft tree, is not here.
  vLLM #43184, #45229, SGLang #9041 (closed)  by=ratio threshold=0.5 top_n=3 span=thinking
  vLLM-HUST vSpec, confidence_accept_margin m (logits), _from_position, _after_tokens, _protected_token_ids
                                   by=ratio threshold=exp(-m)
  AtomicBot-ai/atomic-llama-cpp-turboquant #8, --draft-p-accept c  by=probability threshold=c

In docs/rules.md
  accepts  `p0(x) >= threshold max p0` (or `p0(x) >= threshold`), also among the `top_n` best, else the lossless test;
           `from_position`, `after_tokens`, `protected` and thinking spans restrict it
  reads    raw softmax, p; q of sampled candidates; chains; state of the request
  emits    the lossless residual (argmax z at T = 0)
  strict   `top_n=1` at T = 0: greedy matching; none above
  source   AdaptiveSpec; pull requests of vLLM and SGLang; vLLM-HUST vSpec: `confidence_accept_margin`; a fork of
           llama.cpp: `--draft-p-accept`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor

from methods.rules._request import ThinkingRule, count_answered, in_top, start_count
from methods.rules.base import Decision, Model, Rule, Sampling, State, Target, ThresholdView, Verification, Walk
from methods.rules.lossless import lossless_test, residual


class NearTop(ThinkingRule):
    """by, threshold, top_n (null: all), from_position, after_tokens, protected, span, begin, end: as above."""

    chain_only: ClassVar[bool] = True
    local: ClassVar[bool] = False
    by: Literal["ratio", "probability"] = "ratio"
    threshold: float = Field(0.2, gt=0.0, le=1.0)
    top_n: PositiveInt | None = None
    from_position: NonNegativeInt = 0
    after_tokens: NonNegativeInt = 0
    protected: list[NonNegativeInt] = Field([])

    def is_memoryless(self) -> bool:
        return not (self.from_position or self.after_tokens or self.span == "thinking")

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy and self.top_n == 1

    def bind(self, target: Target, model: Model | None) -> Rule:
        if max(self.protected, default=0) >= target.vocab_size:
            raise ValueError(f"rule.protected={list(self.protected)}: must be token ids of {target.source}, whose "
                             f"vocabulary has {target.vocab_size} entries")
        return super().bind(target, model)

    def start(self, rows: Sequence[Sequence[int]], device: torch.device) -> State:
        return super().start(rows, device) | start_count(rows, device)

    def next_state(self, v: Verification, path: Walk, token: Tensor) -> State:
        return super().next_state(v, path, token) | count_answered(v, path)

    def decide(self, v: Verification) -> Decision:
        view = self.threshold_view(v)
        return Decision(view.kept, view.outside)

    def threshold_view(self, v: Verification) -> ThresholdView:
        strict = lossless_test(v)
        score = torch.exp(-v.regret if self.by == "ratio" else v.token_logprob)
        return ThresholdView("threshold", ">=", self.threshold, score, strict | self._may_relax(v), strict)

    def _may_relax(self, v: Verification) -> Tensor:
        """[B, N] bool: whatever is asked of x but its nearness."""
        may = v.draft.depth > self.from_position
        if self.after_tokens:
            may = may & (v.state["answered"] >= self.after_tokens)[:, None]
        if self.span == "thinking":
            may = may & v.state["thinking"][:, None]
        if self.top_n is not None:
            may = may & in_top(v, self.top_n)
        best = v.at_parent(v.argmax)
        for token in self.protected:
            may = may & (v.draft.tokens != token) & (best != token)
        return may

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return super().emit(v, node) if v.sampling.greedy else residual(v, node)
