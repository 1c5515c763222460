"""Block verification: speculative sampling that judges prefixes of a chain as a whole. Lossless, and never worse.

x_1 ... x_K are drafted from q, p and q taken in the context of each. With P_0 = 1,

    P_i = min(1, P_(i-1) p(x_i)/q(x_i))
    h_i = Z_i / (Z_i + 1 - P_i),   Z_i = sum over v of max(0, P_i p(v) - q(v)) in the context behind x_i;   0/0 is 1

The number of kept tokens is the *largest* i with u_i < h_i, 0 if there is none: u_i belongs to the prefix of length i,
and an early failure does not end the search. Behind x_K nothing was drafted, q = 0, so that h_K = P_K. The token after
the kept prefix has weights max(0, P_i p(v) - q(v)). A deterministic candidate is drawn from a point mass on itself.

variant
  block   as above: exactly the target's distribution at every temperature, and in expectation at least as many
          drafts are kept as by `lossless`.
  ascend  what vllm-ascend releases under the name (vllm_ascend/sample/rejection_sampler.py 182b75ea): the last i with
          prod_(j<=i) min(1, p/q) > prod_(j<=i) u_j, then the residual of `lossless`; fewer than three drafted tokens
          are tested one by one. NOT lossless.

Chains only, and at temperature 0 greedy matching. Source: Sun et al. 2024, "Block Verification Accelerates Speculative
Decoding" (arXiv 2403.10444), Algorithm 2; vLLM's rejection_sample_method=block, rejection_sampler_utils.py 02e318bd.

In docs/rules.md
  accepts  the longest prefix with `u_i < h_i`, judged as a whole
  reads    p, q; chains
  emits    norm max(0, P p - q)
  strict   always lossless (`variant=block`); `ascend` is biased
  source   vLLM: `rejection_sample_method=block`; vllm-ascend: `enable_block_verify` (`ascend`)
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from methods.rules.base import Decision, Rule, Sampling, Verification
from methods.rules.lossless import lossless_test, residual

ASCEND_MINIMUM = 3


class Block(Rule):
    """variant: block, which is lossless, or ascend, which is not."""

    chain_only: ClassVar[bool] = True
    local: ClassVar[bool] = False
    variant: Literal["block", "ascend"] = "block"

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.variant == "block"

    def decide(self, v: Verification) -> Decision:
        lossless = lossless_test(v)
        if v.sampling.greedy:
            return Decision(lossless)
        if self.variant == "ascend":
            together = (v.drafted >= ASCEND_MINIMUM)[:, None]
            return Decision(torch.where(together, _up_to_last(v, _ascend_passes(v)), lossless), lossless)
        return Decision(_up_to_last(v, v.u < thresholds(v)))

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if v.sampling.greedy or self.variant == "ascend":
            return residual(v, node)
        p, last = v.p_at(node), node == v.drafted
        prefix = v.at(prefix_ratio(v), node)[:, None]
        left = prefix * p
        if v.draft.sampled:
            q = v.sampling.probs(v.at(v.draft_logits, node))  # unspecified behind the last token, where it is not used
            left = (left - torch.where(last[:, None], 0.0, q)).clamp(min=0.0)
        else:
            drafted = v.at(v.draft.tokens, (node + 1).clamp(max=v.draft.nodes - 1))[:, None]
            left = torch.where(last[:, None], left, left.scatter(1, drafted, 0.0))
        # Fall back to p if rounding leaves nothing.
        return torch.where(left.sum(-1, keepdim=True) > 0, left, p)


def prefix_ratio(v: Verification) -> Tensor:
    """P_i: [B, N], 1 at the root. In logarithms the minimum with 1 is the distance to the largest prefix sum so far."""
    summed = _log_ratio(v).cumsum(1)
    return (summed - summed.cummax(1).values).exp()


def thresholds(v: Verification) -> Tensor:
    """h_i: [B, N], without meaning at the root and in padding."""
    prefix = prefix_ratio(v)
    z, last = _excess(v, prefix), v.draft.depth == v.drafted[:, None]
    z = torch.where(last, prefix, z)
    whole = z + (1.0 - prefix)  # in this order: both terms may be tiny
    return torch.where(whole > 0, z / whole, 1.0)


def _excess(v: Verification, prefix: Tensor) -> Tensor:
    """Z_i: [B, N], where a token was drafted behind x_i."""
    if v.draft.sampled:
        return (prefix[..., None] * v.p - v.q).clamp(min=0.0).sum(-1)
    return prefix * (1.0 - v.p_token.roll(-1, 1))


def _log_ratio(v: Verification) -> Tensor:
    """ln p(x_i)/q(x_i): [B, N], 0 at the root and in padding."""
    q = v.q_token if v.draft.sampled else torch.ones_like(v.p_token)
    return torch.where(v.draft.valid & (v.draft.depth > 0), (v.p_token / q).log(), 0.0)


def _ascend_passes(v: Verification) -> Tensor:
    """[B, N] bool: the product of the clipped ratios exceeds that of the random numbers."""
    real = v.draft.valid & (v.draft.depth > 0)
    drawn = torch.where(real, v.u, 1.0).cumprod(1)
    return drawn < _log_ratio(v).clamp(max=0.0).cumsum(1).exp()


def _up_to_last(v: Verification, passes: Tensor) -> Tensor:
    """[B, N] bool: the nodes up to the deepest drafted one that passes."""
    deepest = torch.where(passes & v.draft.valid, v.draft.depth, 0).amax(1, keepdim=True)
    return v.draft.depth <= deepest
