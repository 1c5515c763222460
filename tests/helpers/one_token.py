"""One context, one drafted token, and what a rule makes of every token that might have been drafted."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.rules.base import Rule
from methods.rules.verification import Verification
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.rule_cases import acceptance


@dataclass
class OneToken:
    """Contexts with one drafted token each.

    accept  [B, V] probability of accepting the token.
    emit    [B, V, V] distribution of the token after a rejection of it.
    q       [B, V] probability of drafting it.
    p       [B, V] processed target distribution.
    """

    accept: Tensor
    emit: Tensor
    q: Tensor
    p: Tensor

    @property
    def emitted(self) -> Tensor:
        """[B, V] distribution of the first emitted token, float64."""
        rejected = (self.q * (1.0 - self.accept))[:, None, :] @ self.emit
        return self.q * self.accept + rejected[:, 0]

    @property
    def bias(self) -> float:
        """Mean total variation between the first emitted token and p."""
        return float((self.emitted - self.p).abs().sum(-1).mean() / 2)

    @property
    def rate(self) -> float:
        """Mean probability of acceptance."""
        return float((self.q * self.accept).sum(-1).mean())


def contexts(seed: int, count: int, vocab: int = 12) -> tuple[Tensor, Tensor]:
    """Raw logits [B, V] of target and draft that agree about half the time."""
    g = torch.Generator().manual_seed(seed)
    base = 2.0 * torch.randn(count, vocab, generator=g)
    target, draft = (base + 0.8 * torch.randn(base.shape, generator=g) for _ in range(2))
    return target, draft


def every_token(rule: Rule, logits: Tensor, draft_logits: Tensor, sampling: Sampling, sampled: bool = True) -> OneToken:
    """`logits` and `draft_logits` [B, V]. Deterministic drafts (`sampled=False`) carry no distribution."""
    rows, vocab = logits.shape
    token = torch.arange(vocab).repeat(rows)
    tokens = torch.stack([torch.zeros_like(token), token], 1)
    z, draft_z = (x.repeat_interleave(vocab, 0)[:, None].expand(-1, 2, -1) for x in (logits, draft_logits))
    q = sampling.probs(draft_logits)
    own_q = torch.stack([torch.ones(rows * vocab), q.flatten()], 1)
    needs_q = sampled or rule.needs_q(sampling)
    draft = Draft.of_chain(tokens, sampled=sampled and not sampling.greedy, logits=draft_z if needs_q else None,
                           q=own_q if needs_q else None)
    v = Verification(draft, z, sampling, torch.zeros(tokens.shape))
    emit = rule.emit(v, torch.zeros(len(token), dtype=torch.long)).double()
    emit = emit / emit.sum(-1, keepdim=True)
    accept = acceptance(rule, v)[:, 1]
    p = sampling.probs(logits).double()
    return OneToken(accept.view(rows, vocab), emit.view(rows, vocab, vocab), q.double(), p)
