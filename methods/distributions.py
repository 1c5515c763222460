"""Entropies and divergences of next-token distributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

Divergence = Literal[
    "js",
    "js_released",
    "kl",
    "kl_released",
    "tv",
    "topk_js",
    "topk_js_released",
    "topk_kl",
    "topk_kl_released",
    "topk_tv",
]
TOP_K = 50
ENTRIES = 100_000
"""So many probabilities at a time on a CPU: what is computed between stays in its cache."""


def entropy(p: Tensor) -> Tensor:
    """Entropy over ln V of distributions [..., V] -> [...] in [0, 1]."""
    nats: Tensor = torch.special.entr(p).sum(-1)
    return nats / math.log(p.shape[-1])


def divergence(kind: Divergence, p: Tensor, q: Tensor) -> Tensor:
    """Div(p, q) over the last dimension: two distributions [..., V] -> [...] in nats (tv: a share
    of the mass)."""
    both, plain = _buckets(p, q) if kind.startswith("topk_") else (p, q), kind.removeprefix("topk_")
    return divergences([plain], *both)[plain]


def divergences(kinds: Sequence[str], p: Tensor, q: Tensor) -> dict[str, Tensor]:
    """Several divergences, none of them top-k, of two distributions [..., V], each [...]: they
    share logarithms."""
    size = max(1, ENTRIES // p.shape[-1]) if p.device.type == "cpu" else max(1, p[..., 0].numel())
    contexts = zip(
        p.reshape(-1, p.shape[-1]).split(size), q.reshape(-1, q.shape[-1]).split(size), strict=True
    )
    parts = [
        [formulas[kind]() for kind in kinds] for formulas in (_formulas(*some) for some in contexts)
    ]
    whole = (torch.cat(pieces).view(p.shape[:-1]) for pieces in zip(*parts, strict=True))
    return dict(zip(kinds, whole, strict=True))


def _formulas(p: Tensor, q: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Each divergence of p and q [..., V] by name, computed when it is called. In KL a token with p
    = 0 adds 0, or NaN if q = 0 as well; equal distributions have exactly 0."""
    log_p, log_q, m = p.log(), q.log(), (p + q) / 2
    log_m = m.log()

    def kl(p: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
        return (p * (torch.where(p > 0, log_p, 0.0) - log_q)).sum(-1)

    def entropies(x: Tensor, log: Tensor) -> Tensor:
        return torch.where(x > 0, -x * log, 0.0)

    return {
        "js": lambda: (entropies(m, log_m) - (entropies(p, log_p) + entropies(q, log_q)) / 2).sum(
            -1
        ),
        "js_released": lambda: (m * (log_m - (log_p + log_q) / 2)).sum(-1),
        "kl": lambda: kl(p, log_p, log_q),
        "kl_released": lambda: kl(q, log_q, log_p),
        "tv": lambda: (p - q).abs().sum(-1) / 2,
    }


def _buckets(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """The target's top tokens and one bucket for the others; a vocabulary of up to 50 tokens has no
    others."""
    if p.shape[-1] <= TOP_K:
        return p, q
    top, ids = p.topk(TOP_K, dim=-1)
    # The tail is summed, not 1 - top: the difference would be rounding noise, and its logarithm
    # too.
    tail_p, tail_q = (x.scatter(-1, ids, 0.0).sum(-1, keepdim=True) for x in (p, q))
    return torch.cat([top, tail_p], -1), torch.cat([q.gather(-1, ids), tail_q], -1)
