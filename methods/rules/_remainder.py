"""What speculative sampling leaves of target and draft in a context whose sampled children are rejected one by one.

M and S begin as p and q, alpha is the probability with which the path up to the context may be kept (1 where that is
settled). A child x is reached with min(1, alpha M(x)/S(x)); once it is rejected

    r = max(0, alpha M - S),   M <- r / sum r,   alpha <- sum r / (sum r + 1 - alpha)   (1 if 0/0)

and S stays for independent siblings, or loses x and is renormalised for siblings drawn without replacement. With
alpha = 1 this is the token-wise scheme: alpha stays 1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.rules.verification import Verification


@dataclass(frozen=True, slots=True)
class Remainder:
    """State of contexts [...] over V tokens.

    m            [..., V] what is left of the target's processed distribution, normalised.
    s            [..., V] the distribution of the next child.
    alpha        [...] as above.
    replacement  siblings are independent.
    """

    m: Tensor
    s: Tensor
    alpha: Tensor
    replacement: bool

    def reach(self, token: Tensor) -> Tensor:
        """[...] min(1, alpha M(x)/S(x)) of the tokens [...]."""
        m, s = (x.gather(-1, token[..., None])[..., 0] for x in (self.m, self.s))
        return (self.alpha * m / s).clamp(max=1.0)

    def reject(self, token: Tensor, real: Tensor) -> Remainder:
        """After the rejection of the child `token` [...], where there is one: `real` [...] bool."""
        left = (self.alpha[..., None] * self.m - self.s).clamp(min=0.0)
        total = left.sum(-1)
        whole = total + (1.0 - self.alpha)  # in this order: both terms may be tiny
        alpha = torch.where(whole > 0, total / whole, 1.0)
        m = torch.where((real & (total > 0))[..., None], left / total[..., None], self.m)
        s = self.s
        if not self.replacement:
            s = s.scatter(-1, token[..., None], 0.0)
            s = torch.where(real[..., None], s / s.sum(-1, keepdim=True), self.s)
        return Remainder(m, s, torch.where(real, alpha, self.alpha), self.replacement)


def rejected(v: Verification, node: Tensor, alpha: Tensor) -> Tensor:
    """[B, V] M in the context of node [B], entered with alpha [B], once all its children are rejected; p at a leaf."""
    children = v.children_of(node)
    count = children.cumsum(1)
    left = Remainder(v.p_at(node), v.sampling.probs(v.at(v.draft_logits, node)), alpha, v.draft.replacement)
    for rank in range(v.draft.width or v.draft.nodes - 1):
        which = children & (count == rank + 1)
        token = v.at(v.draft.tokens, which.long().argmax(1))
        left = left.reject(token, which.any(1))
    return left.m
