"""Typical acceptance (Medusa): accept a token that is likely relative to the target's entropy; keep the longest path.

    accept x  iff  p(x) > min(epsilon, delta * exp(-H(p)))        H(p) = -sum_v p(v) log p(v), nats

p is the target's distribution in the context of x's parent. Of all paths whose nodes are all accepted, the longest is
kept; among equally long ones, the one with the largest product of p(x). Siblings are not tested in order: the tree is
evaluated as a whole. The token after the path is the target's argmax at every temperature, so typical acceptance is
not a sampling method: if all drafts are wrong, it is greedy decoding. At temperature 0 the rule is greedy matching.
Source: Medusa (Cai et al. 2024), section 2.3.1; FasterDecoding/Medusa, `evaluate_posterior(fast=True)`.

variant
  paper     p is the processed distribution (temperature, top-k, top-p), H its entropy.
  released  p = softmax(z / temperature), without top-k and top-p; H = -sum_v p(v) log(p(v) + 1e-5), slightly
            smaller. The repository calls delta `posterior_alpha` and epsilon `posterior_threshold`.
correction
  greedy    the argmax, as above.
  sample    drawn from p instead: typical acceptance as a sampling method. In neither source.

In docs/rules.md
  accepts  `p(x) > min(epsilon, delta exp(-H))`; the longest such path
  reads    p and its entropy; any candidates
  emits    argmax z (`correction=sample`: p)
  strict   none above T = 0
  source   Medusa: `posterior_threshold=epsilon`, `posterior_alpha=delta`
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Decision, Rule, Sampling, Verification
from methods.rules.lossless import lossless_test

RELEASED_EPSILON = 1e-5


class Typical(Rule):
    """Options of typical acceptance.

    variant     paper or released, as above.
    epsilon     a token with a larger probability is always accepted.
    delta       weight of exp(-H); sqrt(epsilon) in both sources.
    correction  how the token after the path is chosen, as above.
    """

    variant: Literal["paper", "released"] = "paper"
    epsilon: float = Field(0.09, ge=0.0, le=1.0)
    delta: float = Field(0.3, ge=0.0, le=1.0)
    correction: Literal["greedy", "sample"] = "greedy"

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy

    def emits_argmax(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.correction == "greedy"

    def decide(self, v: Verification) -> Decision:
        if v.sampling.greedy:
            return Decision(v.is_argmax)
        p = v.p if self.variant == "paper" else (v.logits / v.sampling.temperature).softmax(-1)
        p_token = v.of_token(p)
        accept = p_token > v.at_parent(self._threshold(p))
        return Decision(accept if v.draft.chain else best_path(v, accept, p_token), lossless_test(v))

    def _threshold(self, p: Tensor) -> Tensor:
        """min(epsilon, delta exp(-H)) in each context: [B, N, V] -> [B, N]."""
        log_p = (p + RELEASED_EPSILON).log() if self.variant == "released" else torch.where(p > 0, p, 1.0).log()
        entropy = -(p * log_p).sum(-1)
        return (self.delta * (-entropy).exp()).clamp(max=self.epsilon)


def best_path(v: Verification, accept: Tensor, p_token: Tensor) -> Tensor:
    """[B, N] bool: the nodes of the longest path whose nodes are all accepted, the most probable among ties. `p_token`
    [B, N]: probabilities of the nodes' tokens."""
    draft = v.draft
    accept = accept & draft.valid
    accept[:, 0] = True
    whole = ~(draft.ancestors & ~accept[:, None, :]).any(-1)
    log_p = torch.where(accept & (draft.depth > 0), p_token, 1.0).log()  # 0 at the root, and finite: accepted has p > 0
    likelihood = (draft.ancestors.to(log_p.dtype) @ log_p[..., None])[..., 0]
    depth = torch.where(whole, draft.depth, -1)
    longest = depth == depth.amax(1, keepdim=True)
    last = torch.where(longest, likelihood, -torch.inf).argmax(1)
    rows = torch.arange(len(last), device=last.device)
    return draft.ancestors.expand(len(last), -1, -1)[rows, last]
