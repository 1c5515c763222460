"""Rules for chains at temperature 0 that keep some tokens which are not the target's argmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from methods.rules.base import (
    Decision,
    DraftCapabilities,
    Rule,
    Sampling,
    State,
    ThresholdView,
    Verification,
    Walk,
)
from methods.rules.lossless import ThresholdRule, lossless_test, residual

EPSILON = 1e-9


class Asd(ThresholdRule):
    """ASD: keep mismatches while their regret fits a budget of the whole request.

    The drafted tokens of a block are x_0 ... x_(K-1), z the target's raw logits in the context of
    x_i. Then

        regret r_i = max z - z(x_i)          value = K - i: what keeping x_i can still win

    In order: x_i equal to the target's argmax is kept and costs nothing. Any other is kept iff

        r_i / value <= regret_per_value,   the block's summed regret <= budget - spent (+ 1e-9),
                                           and it is at most the
        max_relaxed-th of the block.

    The first failure ends the block, and the target's argmax follows. Kept mismatches are charged
    to the request: `spent` is its state, it begins at 0 and never falls. A tied token that is not
    the argmax is a mismatch of regret 0.

    variant
      asd      as above.
      dspark   value (K - i)/K and no 1e-9, as the repository has it for DSpark's drafts.

    Temperature 0 and chains only. Lossless where budget, regret_per_value or max_relaxed is 0 (but
    for tied logits, the last excepted). Source: arXiv 2608.03447; Kissmetothemoon/ASD c9d6b680,
    src/asd/budget.py, which mentions a patent application. Its settings: 8, 0.25, 2; for
    discovering drafts 12, 0.5, 2.

    budget            B, summed regret (logits) of a request's kept mismatches.
    regret_per_value  g, largest regret of one mismatch per drafted token that it can still win.
    max_relaxed       m, largest number of kept mismatches of a block."""

    chain_only = True
    greedy_only = True
    local = False
    variant: Literal["asd", "dspark"] = "asd"
    budget: float = Field(8.0, ge=0.0)
    regret_per_value: float = Field(0.25, ge=0.0)
    max_relaxed: NonNegativeInt = 2

    def start(self, rows: Sequence[Sequence[int]], device: torch.device) -> State:
        """spent: [B] float64, summed regret of the mismatches kept so far."""
        return {"spent": torch.zeros(len(rows), dtype=torch.float64, device=device)}

    def next_state(self, v: Verification, path: Walk, token: Tensor) -> State:
        mismatch = path.kept & (v.draft.depth > 0) & ~v.is_argmax
        return {"spent": v.state["spent"] + torch.where(mismatch, v.regret, 0.0).sum(1)}

    def threshold_view(self, v: Verification) -> ThresholdView:
        """By regret_per_value: in a replay the budget is what the traced run had spent."""
        value = v.drafted[:, None] - v.draft.depth + 1
        left = self.budget - v.state["spent"]
        if self.variant == "dspark":
            value = value / v.drafted[:, None]
        else:
            left = left + EPSILON
        mismatch = ~v.is_argmax & (v.draft.depth > 0)
        summed = torch.where(mismatch, v.regret, 0.0).cumsum(1)
        affordable = (summed <= left[:, None]) & (mismatch.cumsum(1) <= self.max_relaxed)
        return ThresholdView(
            "regret_per_value",
            "<=",
            self.regret_per_value,
            v.regret / value,
            v.is_argmax | affordable,
            v.is_argmax,
        )


class Bild(Rule):
    """BiLD, rollback policy: keep the small model's tokens until the large model finds one of them
    far too unlikely.

        the first x_i with  -ln p0(x_i) > rollback  ends the draft: i tokens are kept, and the
                            target's argmax follows;
        if the target's argmax there is x_i itself, or if there is no such x_i, the whole draft is
        kept

    p0 is the target's raw softmax in the context of x_i. The token after the draft is the target's
    argmax.

    Temperature 0 and chains only. No setting is lossless: a draft token within `rollback` nats is
    kept whatever the target prefers. A larger rollback can keep less, so traces are not replayed at
    another. BiLD's fallback policy, drafting until the small model is unsure, is
    drafter.stop_below=0.6 with draft.length=10. Source: Kim et al. 2023, "Speculative Decoding with
    Big Little Decoder"; kssteven418/BigLittleDecoder ad37f564, t5/modeling_t5.py: rollback 5 by
    default, 2 to 5 in its runs.

    rollback: largest -ln p0 of a kept draft token, in nats."""

    chain_only = True
    greedy_only = True
    local = False
    rollback: PositiveFloat = 5.0

    def decide(self, v: Verification) -> Decision:
        unlikely = (-v.token_logprob > self.rollback) & v.draft.valid & (v.draft.depth > 0)
        count = unlikely.cumsum(1)
        forgiven = (unlikely & (count == 1) & v.is_argmax).any(1, keepdim=True)
        return Decision((count == 0) | forgiven, v.is_argmax)


TOP = 3
ALWAYS_OPEN = 0.01


class Fly(ThresholdRule):
    """FLy: keep a mismatch where the target is unsure, if the drafted tokens behind it match again.

    The drafted tokens of a chain are x_0 ... x_(K-1), t_i the target's argmax in the context of
    x_i, p0 its raw softmax there. x_i is accepted iff x_i = t_i, or if both hold:

        gate      -sum over the `entropy_top_k` likeliest tokens of p0 ln p0  >=  entropy
                  (nats, not renormalised)
        window    i <= K - 1 - window   and   x_j = t_j for j = i+1 ... i+window-1

    The first rejection ends the chain; the target's argmax follows. A window of W thus needs W - 1
    matches behind the mismatch and one more position; with K < window + 1 nothing is relaxed, and
    the last `window` positions never are. no_window=true drops the second condition.

    variant
      paper     as above, at temperature 0 alone: the released code's variants for T > 0 and for
                trees are not offered. The gate is open everywhere for entropy <= 0.01.
      vllm      `rejection_sample_method=fly` of vLLM, at any temperature: x_i is accepted iff the
                lossless test accepts it or, with p the processed distribution in place of p0
                (p0 at temperature 0) and `window` tokens accepted in place of window - 1 matches,

        p(x_i) > 0,   gate,   i <= K - 1 - window,   x_j accepted by the lossless test for
                      j = i+1 ... i+window

                Behind a rejection follows what the lossless test draws.

    Chains only. What is kept depends on the tokens behind it, so no law of a context exists and D
    is not known: an audit of its texts gives a lower bound (docs/audit.md). A setting is lossless
    only if it relaxes nothing: entropy beyond the largest partial entropy, or a window of at least
    K. Source: arXiv 2511.22972; AMD-AGI/FLy 6667ae84, whose run has K = 15 and an n-gram drafter in
    front of the draft model; vLLM's vllm/v1/spec_decode/fly.py (pull request 53987).

    window         W: x_i is followed by W - 1 matches and one more position.
    entropy        smallest partial entropy, in nats, at which a mismatch may be kept.
    no_window      the gate alone decides.
    entropy_top_k  so many of the likeliest tokens make the partial entropy."""

    chain_only = True
    greedy_only = True
    local = False
    window: PositiveInt = 6
    entropy: float = Field(0.3, ge=0.0)
    no_window: bool = False
    variant: Literal["paper", "vllm"] = Field("paper", exclude_if=lambda name: name == "paper")
    entropy_top_k: PositiveInt = Field(TOP, exclude_if=lambda count: count == TOP)

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        # the engine's form has no temperature of its own
        super().check(candidates, Sampling() if self.variant == "vllm" else sampling)

    def threshold_view(self, v: Verification) -> ThresholdView:
        native, confirmed, p = v.is_argmax, torch.ones_like(v.is_argmax), v.logits
        if self.variant == "vllm":
            native = lossless_test(v)
            p = v.logits if v.sampling.greedy else v.sampling.process(v.logits)
        if not self.no_window:
            matches = self.window - (self.variant == "paper")
            confirmed = self._confirmed(v, native, matches)
        if not v.sampling.greedy:
            confirmed = confirmed & (v.p_token > 0)
        return ThresholdView(
            "entropy",
            ">=",
            self.entropy,
            v.at_parent(self._partial_entropy(p)),
            native | confirmed,
            native,
        )

    def _partial_entropy(self, logits: Tensor) -> Tensor:
        """[B, N] nats; in the paper's form at least ALWAYS_OPEN: a gate of that passes every
        context."""
        count = min(self.entropy_top_k, logits.shape[-1])
        top = logits.topk(count, dim=-1).values - logits.logsumexp(-1, keepdim=True)
        found = -torch.where(top.isinf(), 0.0, top.exp() * top).sum(-1)
        return found.clamp(min=ALWAYS_OPEN) if self.variant == "paper" else found

    def _confirmed(self, v: Verification, native: Tensor, matches: int) -> Tensor:
        """[B, N] bool: the next `matches` drafted tokens are accepted by themselves, and `window`
        more tokens were drafted."""
        count = native.cumsum(1)
        node = torch.arange(v.draft.nodes, device=count.device)  # node i + 1 holds x_i
        last = (node + matches).clamp(max=v.draft.nodes - 1)
        return (count[:, last] - count == matches) & (node <= (v.drafted - self.window)[:, None])

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return super().emit(v, node) if v.sampling.greedy else residual(v, node)
