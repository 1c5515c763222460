"""FastDeploy's verification: keep tokens of a truncated nucleus, and a runner-up behind which the
target agrees again.

p = softmax(z/T), without top-k, in the context of the drafted token x. The candidates are its
`max_candidates` most likely tokens; n of them are needed until their sum reaches decoding.top_p (n
= 0 if all together do not; for top_p = 1, n = max_candidates). Then

    accept x  iff  x is one of the first n candidates
    else      iff  x is the runner-up and each of the next `window` drafted tokens is the argmax of
              its context: x and these are accepted together

On rejection, and as the bonus, with u uniform: the first candidate whose cumulative probability
reaches u top_p, else the first candidate; for n = 0 the argmax.

variant
  intended  goes on verifying after a window, as the repository's test mirror does.
  released  stops there. It draws with u min(sum of the n, top_p), and where n > 0 the ids behind
            the first n are left 0, so that a window opens only for n = 0, or for n = 1 and token 0.

Chains only. At temperature 0, which the kernel does not have, the rule is greedy matching; above it
no setting is lossless. Where the candidates do not reach top_p, even an argmax draft is rejected;
window = 0 takes any runner-up. Source: PaddlePaddle FastDeploy,
custom_ops/gpu_ops/speculate_decoding: top_p_candidates.cu 526d1cfc, speculate_verify.cu 2a5d357c,
verify_draft_tokens.cu faace3cf; its default is TOPP with 5 candidates and a window of 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field, NonNegativeInt
from torch import Tensor

from methods.rules.base import Verification
from methods.rules.lossless import WarmRule


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The likeliest tokens of contexts, best first.

    ids         [..., C] int64.
    cumulative  [..., C] float64, of their probabilities.
    count       [...] int64: n, how many of them count.
    """

    ids: Tensor
    cumulative: Tensor
    count: Tensor

    @property
    def counted(self) -> Tensor:
        """[..., C] bool: the first n."""
        return torch.arange(self.ids.shape[-1], device=self.ids.device) < self.count[..., None]


class ToppWindow(WarmRule):
    """Options of the top-p window.

    max_candidates  C.
    window          W, matches that must follow a runner-up.
    """

    chain_only = True
    local = False
    variant: Literal["intended", "released"] = "intended"
    max_candidates: int = Field(5, ge=2)
    window: NonNegativeInt = 2

    def warm_test(self, v: Verification, lossless: Tensor) -> Tensor:
        candidates = self._candidates(v, v.logits)
        inside = (
            (v.draft.tokens[..., None] == v.at_parent(candidates.ids))
            & v.at_parent(candidates.counted)
        ).any(-1)
        begins = v.draft.valid & (v.draft.depth > 0) & ~inside & self._followed(v)
        begins = begins & (v.draft.tokens == v.at_parent(self._runner_up(candidates)))
        begun = begins.cumsum(1)
        accept = inside | (begun > _moved(begun, self.window + 1))
        if self.variant == "released":
            accept = accept & ~_moved(begins, self.window + 1)
        return accept

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if v.sampling.greedy:
            return super().emit(v, node)
        candidates, top_p = self._candidates(v, v.at(v.logits, node)), v.sampling.top_p
        summed = (
            torch.where(candidates.counted, candidates.cumulative, 0.0)
            .cummax(-1)
            .values.clamp(max=top_p)
        )
        weight = summed.diff(dim=-1, prepend=torch.zeros_like(summed[..., :1]))
        if self.variant == "intended":
            weight[..., 0] += top_p - summed[..., -1]  # what no candidate reaches
        weight[..., 0] += candidates.count == 0
        return torch.zeros_like(v.logits[:, 0], dtype=weight.dtype).scatter_(
            -1, candidates.ids, weight
        )

    def _candidates(self, v: Verification, logits: Tensor) -> _Candidates:
        """Of the contexts with these raw logits [..., V]."""
        p, ids = (
            (logits / v.sampling.temperature)
            .softmax(-1)
            .topk(min(self.max_candidates, logits.shape[-1]), dim=-1)
        )
        cumulative = p.double().cumsum(-1)
        if v.sampling.top_p == 1.0:
            return _Candidates(ids, cumulative, torch.full_like(ids[..., 0], ids.shape[-1]))
        reaches = cumulative >= v.sampling.top_p
        return _Candidates(
            ids, cumulative, torch.where(reaches.any(-1), reaches.long().argmax(-1) + 1, 0)
        )

    def _runner_up(self, candidates: _Candidates) -> Tensor:
        """[B, N] the token that may begin a window."""
        if self.variant == "intended":
            return candidates.ids[..., 1]
        return torch.where(candidates.count == 1, 0, candidates.ids[..., 1])

    def _followed(self, v: Verification) -> Tensor:
        """[B, N] bool: the next `window` drafted tokens are each the argmax of their context."""
        match = v.is_argmax & v.draft.valid
        count = match.cumsum(1)
        return _moved(count, -self.window) - count == self.window


def _moved(x: Tensor, places: int) -> Tensor:
    """[B, N] moved `places` nodes towards the chain's end (its beginning if negative), zeros in the
    gap."""
    size = min(abs(places), x.shape[1])
    gap = torch.zeros_like(x[:, :size])
    return torch.cat([gap, x[:, : x.shape[1] - size]] if places > 0 else [x[:, size:], gap], 1)
