"""Rules that are strict in some places of an answer and relaxed in others."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from methods.rules.base import (
    Decision,
    DraftCapabilities,
    Model,
    Rule,
    Sampling,
    State,
    Target,
    ThresholdView,
    Verification,
    Walk,
)
from methods.rules.combined import Nested, Options, built
from methods.rules.lossless import ThresholdRule, lossless_test, residual

Ramp = Literal["step", "linear", "power"]


class CountingRule(Rule):
    """A rule that knows how far an answer has come: `state["answered"]` [B] int64 counts its
    tokens."""

    def start(self, rows: Sequence[Sequence[int]], device: torch.device) -> State:
        """answered: 1, since the prefill has given the first."""
        return super().start(rows, device) | {
            "answered": torch.ones(len(rows), dtype=torch.long, device=device)
        }

    def next_state(self, v: Verification, path: Walk, token: Tensor) -> State:
        return super().next_state(v, path, token) | {
            "answered": v.state["answered"] + path.length + 1
        }


def place(v: Verification) -> Tensor:
    """[B, N] the place in its answer, from 0, of the token that follows each node."""
    return v.state["answered"][:, None] + v.draft.depth


def ramp(
    t: Tensor, shape: Ramp, start: float, end: float, tokens: int, gamma: float = 1.0
) -> Tensor:
    """From `start` at place 0 to `end` at place `tokens`: all at once there (step), or along
    (t/tokens)^gamma (power; linear: gamma 1). t [...] int64 -> [...] float32."""
    if shape == "step":
        return torch.where(t < tokens, start, end)
    share = (
        (t / max(tokens, 1)).clamp(max=1.0) if tokens else torch.ones_like(t, dtype=torch.float32)
    )
    return start + (end - start) * share ** (gamma if shape == "power" else 1.0)


def in_top(v: Verification, count: int) -> Tensor:
    """[B, N] bool: the node's token is one of the target's `count` best at its parent; all that tie
    with the last count, but of one the first argmax alone."""
    if count == 1:
        return v.is_argmax
    lowest = v.logits.topk(min(count, v.logits.shape[-1]), dim=-1).values[..., -1]
    return v.of_token(v.logits) >= v.at_parent(lowest)


class ThinkingRule(Rule):
    """A rule that may relax inside a thinking span alone.

    span   everywhere, thinking or released. A request starts inside a span if the last token
           `begin` of its prompt stands behind the last `end`; with `released`, as TensorRT-LLM
           does, if its prompt holds a `begin` at all. Of the answer's first token and of the tokens
           of each block, begin opens the span and end closes it, from the next block on.
    begin  token id that opens a thinking span; not for span=everywhere.
    end    token id that closes it.
    """

    span: Literal["everywhere", "thinking", "released"] = "everywhere"
    begin: NonNegativeInt | None = None
    end: NonNegativeInt | None = None

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.span != "everywhere" and (
            self.begin is None or self.end is None or self.begin == self.end
        ):
            raise ValueError(
                f"rule={self.name} with span={self.span} needs two tokens, not begin={self.begin} "
                f"and end={self.end}: give rule.begin=ID rule.end=ID, or rule.span=everywhere"
            )

    def bind(self, target: Target, model: Model | None) -> Rule:
        if self.span != "everywhere" and max(self.begin or 0, self.end or 0) >= target.vocab_size:
            raise ValueError(
                f"rule={self.name}: begin={self.begin} and end={self.end} must be token ids of "
                f"{target.source}, whose vocabulary has {target.vocab_size} entries"
            )
        return self

    def start(self, rows: Sequence[Sequence[int]], device: torch.device) -> State:
        """thinking: [B] bool, the request is inside a thinking span."""
        if self.span == "everywhere":
            return {}
        if self.span == "released":
            inside = [self.begin in row and row[-1] != self.end for row in rows]
        else:
            markers = [[token for token in row if token in (self.begin, self.end)] for row in rows]
            inside = [row[-1:] == [self.begin] for row in markers]
        return {"thinking": torch.tensor(inside, device=device)}

    def next_state(self, v: Verification, path: Walk, token: Tensor) -> State:
        if self.span == "everywhere":
            return {}
        assert self.begin is not None and self.end is not None, (
            "check() refuses a span without its tokens"
        )
        kept, depth = path.kept & (v.draft.depth > 0), v.draft.depth

        def last(which: int) -> Tensor:
            """[B] place in the block of the last such token; 0 if there is none."""
            in_draft = torch.where(kept & (v.draft.tokens == which), depth, 0).amax(1)
            return torch.where(token == which, path.length + 1, in_draft)

        begin, end = last(self.begin), last(self.end)
        return {"thinking": torch.where(begin == end, v.state["thinking"], begin > end)}


class NearTop(CountingRule, ThinkingRule, ThresholdRule):
    """Keep a token that the target ranks near its best: its share of the largest probability, or
    its own probability.

        accept x  iff  near(x), or the lossless test accepts it (greedy matching at temperature 0)
        near(x)   by=ratio        p0(x) / max p0 >= threshold      (the same as  max z - z(x) <= -ln
                  threshold) by=probability  p0(x) >= threshold and, where given: x is among the
                  target's `top_n` best; x stands at place `from_position` of the draft or behind
                  (from 0); the answer has `after_tokens` tokens before the block; neither x nor the
                  target's argmax is one of `protected`; the request is inside a thinking span

    p0 is the target's raw softmax in the context of x (temperature 1, no filter), z its logits.
    Correction and bonus as in `lossless`. The sources decode greedily; above temperature 0, where
    they stay strict, near(x) stands in front of the lossless test here. Chains only. At temperature
    0, top_n = 1 is greedy matching, as is threshold = 1 but for ties; no setting is lossless above.

    Sources, with the settings that go with them:
      AdaptiveSpec (arXiv 2609.02897)  by=ratio threshold=0.2; its kappa is chosen for each model
                                       and task. Its draft tree is not here.
      vLLM #43184, #45229, SGLang #9041 (closed)  by=ratio threshold=0.5 top_n=3 span=thinking
      vLLM-HUST vSpec, confidence_accept_margin m (logits), _from_position, _after_tokens,
      _protected_token_ids
                                       by=ratio threshold=exp(-m)
      AtomicBot-ai/atomic-llama-cpp-turboquant #8, --draft-p-accept c  by=probability threshold=c"""

    chain_only = True
    local = False
    by: Literal["ratio", "probability"] = "ratio"
    threshold: float = Field(0.2, gt=0.0, le=1.0)
    top_n: PositiveInt | None = None
    from_position: NonNegativeInt = 0
    after_tokens: NonNegativeInt = 0
    protected: list[NonNegativeInt] = Field([])

    def is_memoryless(self) -> bool:
        return not (self.from_position or self.after_tokens or self.span != "everywhere")

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy and self.top_n == 1

    def bind(self, target: Target, model: Model | None) -> Rule:
        if max(self.protected, default=0) >= target.vocab_size:
            raise ValueError(
                f"rule.protected={list(self.protected)}: must be token ids of {target.source}, "
                f"whose vocabulary has {target.vocab_size} entries"
            )
        return super().bind(target, model)

    def threshold_view(self, v: Verification) -> ThresholdView:
        strict = lossless_test(v)
        score = torch.exp(-v.regret if self.by == "ratio" else v.token_logprob)
        return ThresholdView(
            "threshold", ">=", self.threshold, score, strict | self._may_relax(v), strict
        )

    def _may_relax(self, v: Verification) -> Tensor:
        """[B, N] bool: whatever is asked of x but its nearness."""
        may = v.draft.depth > self.from_position
        if self.after_tokens:
            may = may & (v.state["answered"] >= self.after_tokens)[:, None]
        if self.span != "everywhere":
            may = may & v.state["thinking"][:, None]
        if self.top_n is not None:
            may = may & in_top(v, self.top_n)
        best = v.at_parent(v.argmax)
        for token in self.protected:
            may = may & (v.draft.tokens != token) & (best != token)
        return may

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return super().emit(v, node) if v.sampling.greedy else residual(v, node)


class RelaxedTopk(ThinkingRule):
    """Relaxed acceptance of production engines: keep a token of the target's top N that is nearly
    as likely as the top.

        accept x  iff  x is among the top_n likeliest tokens  and  p0(x) >= max p0 - delta;   then
                  emit the argmax

    p0 is the target's raw softmax in the context of x (temperature 1, no top-k, no top-p). The rule
    is deterministic at every temperature, the request's sampling is ignored: compare it with
    temperature 0.

    span
      everywhere  for every token, as ROCm ATOM does.
      thinking    `delta` inside a thinking span (`ThinkingRule`), 0 outside, as MAX does.
      released    as TensorRT-LLM does: an `end` in the prompt, behind its `begin`, is overlooked.

    delta = 0 keeps the argmax and exact ties with it among the top N; top_n = 1 is greedy matching.
    No setting is lossless above temperature 0. Chains only.

    Sources, with the flag that switches it on and the values that go with it:
      TensorRT-LLM  use_relaxed_acceptance_for_thinking; off by default (relaxed_topk 1,
                    relaxed_delta 0), published examples 10/0.6 and 15/0.5, tokens 128798 and 128799
                    of DeepSeek-R1; mtpKernels.cu 3585984b, mtp.py 23ee85ee
      Modular MAX   use_relaxed_acceptance_for_thinking; 10/0.6
      ROCm ATOM     ATOM_ENABLE_RELAXED_MTP=1; 10/0.6 everywhere; rejection_sampler.py 03802ca1

    top_n: N, the number of candidates. delta: largest distance to the top probability."""

    chain_only = True
    local = False
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
        """[B, N] float64: max p0 - p0(x), in the span; outside only ties are at a finite distance,
        0."""
        top = v.at_parent(v.logits.amax(-1) - v.log_mass).double()
        distance = top.exp() * -torch.expm1(-v.regret)
        if self.span == "everywhere":
            return distance
        return torch.where(v.state["thinking"][:, None] | (distance == 0), distance, torch.inf)


LARGEST = 1.0 - 2.0**-24
"""Below 1: rounding must not stretch a uniform number to it."""


class SecureSd(CountingRule, Nested):
    """SecureSD: a relaxed rule mixed with the strict one, strict at the beginning of an answer.

        accept x  with probability  eta(t) a(x) + (1 - eta(t)) min(1, p(x)/q(x))
        rejected: drawn from the relaxed rule's distribution with probability eta(t), else from
        norm(max(0, p - q)); bonus likewise, from the relaxed rule's or from p

    a(x) is the relaxed rule's probability of accepting x, t the place of the token in its answer,
    from 0. The answer's first token is drawn from p by the prefill, so t = 0 is always strict. One
    number tests both: below eta it is stretched to [0, 1) for the relaxed rule, above it for the
    strict one. At temperature 0 the strict test is greedy matching.

    eta  schedule=step    start_eta for t < tokens, end_eta from there on
         schedule=linear  in proportion to min(1, t/tokens) between the two;   power: to min(1,
                          t/tokens)^gamma

    Lossless where start_eta = end_eta = 0. Chains; the relaxed rule must decide each token from its
    own context, which excludes FLy and BiLD. Source: arXiv 2610.08678 (IEEE S&P 2027), Algorithm 2;
    YichiCS/Secure-Speculative-Decoding 750c4869, verifier/fusion.py and eta.py: step from 0 to 1
    with tokens 1 and 2, up to 8.

    relaxed: `name` of a rule and its options."""

    chain_only = True
    local = False
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

    def eta(self, v: Verification) -> Tensor:
        """[B, N] of the token that follows each node."""
        return ramp(place(v), self.schedule, self.start_eta, self.end_eta, self.tokens, self.gamma)

    def decide(self, v: Verification) -> Decision:
        eta = v.at_parent(self.eta(v))
        relaxed = v.u < eta
        stretched = copy.copy(v)  # what was computed of the draft stays
        stretched.u = torch.where(relaxed, v.u / eta, (v.u - eta) / (1.0 - eta)).clamp(max=LARGEST)
        decision, strict = self._rules[0].decide(stretched), lossless_test(stretched)
        return Decision(
            torch.where(relaxed, decision.accept, strict), lossless_test(v), decision.flags
        )

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if self.emits_argmax(v.sampling):
            return super().emit(v, node)
        eta = v.at(self.eta(v), node)[:, None]
        relaxed, strict = self._rules[0].emit(v, node), residual(v, node)
        return eta * relaxed / relaxed.sum(-1, keepdim=True) + (1.0 - eta) * strict / strict.sum(
            -1, keepdim=True
        )
