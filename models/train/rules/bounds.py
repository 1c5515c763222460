"""Constants of ARC-Decode's bounds, measured on a target's own answers (Algorithm 1 of Appendix
A.1).

At a position of an answer, t is the target's most likely token and x an alternative. JS is the
Jensen-Shannon divergence in nats between the target's next-token distributions after t and after x,
on the union of both top-K sets. With distance = |W(e_x - e_t)|^2 and margin = (log p(t) - log
p(x))^2, Q the quantile over all positions at 1 - risk level:

    c = Q(JS/distance)    alpha kappa = Q(JS/margin)    tau = Q(min(c distance, alpha kappa margin))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from methods.distributions import entropy
from methods.divergence import js_after
from methods.engine.language_model import LanguageModel
from methods.rules.arc import EPSILON, Bucket
from methods.sampling import Sampling

Alternative = Literal["runner_up", "uniform"]
SMALLEST = 1e-12
"""Floor of distances and margins: those of a tie are zero and their ratio would be infinite."""


@dataclass(frozen=True, slots=True)
class BoundSample:
    """What is measured at one position.

    js                  Jensen-Shannon divergence in nats.
    embedding_distance  |W(e_x - e_t)|^2.
    margin              (log p(t) - log p(x))^2.
    entropy             of p, divided by ln V.
    """

    js: float
    embedding_distance: float
    margin: float
    entropy: float


def inverse_std(embedding: Tensor) -> Tensor:
    """[V, H] -> [H] float32: the diagonal of W, which whitens each dimension."""
    return 1.0 / embedding.float().std(0).clamp(min=1e-8)


@torch.inference_mode()
def measure(
    target: LanguageModel,
    context: Sequence[int],
    answer: Sequence[int],
    sampling: Sampling,
    *,
    count: int,
    top: int,
    alternative: Alternative,
    rng: np.random.Generator,
) -> list[BoundSample]:
    """Measure up to `count` positions of an answer, drawn uniformly. One forward of two siblings
    tries both tokens."""
    ids = [*context, *answer]
    cache = target.new_cache(1, len(ids) + 2)
    keep = torch.arange(len(context) - 1, len(ids) - 1, device=target.device)
    logits = target.forward(torch.tensor([ids], device=target.device), cache, keep=keep).logits[0]
    white, embedding = inverse_std(target.embedding), target.embedding
    chosen = sorted(rng.choice(len(answer), min(count, len(answer)), replace=False), reverse=True)
    samples = []
    for at in chosen:  # last first: trying tokens overwrites the cache after the position
        p = sampling.probs(logits[at])
        best = int(logits[at].argmax())
        other = _alternative(logits[at], best, alternative, top, rng)
        js = js_after(target, cache, len(context) + int(at), (best, other), top)
        distance = ((embedding[other].float() - embedding[best].float()) * white).square().sum()
        margin = (p[best].clamp(min=EPSILON).log() - p[other].clamp(min=EPSILON).log()).square()
        samples.append(BoundSample(js, float(distance), float(margin), float(entropy(p))))
    return samples


def _alternative(
    logits: Tensor, best: int, kind: Alternative, top: int, rng: np.random.Generator
) -> int:
    """The runner-up, or one of the `top` best tokens that is not the best."""
    ranked = [
        token for token in logits.topk(min(top, len(logits))).indices.tolist() if token != best
    ]
    return int(ranked[0]) if kind == "runner_up" else int(rng.choice(ranked))


def fit(
    positions: Sequence[BoundSample], *, delta: float, trim: float = 0.0, slack: float = 1.0
) -> Bucket:
    """The constants fitted on `positions` at risk level `delta`. `trim`: share of the largest
    ratios left out; `slack`: divisor of tau (the released script: 0.005 and 1 - theta)."""
    js, distance, margin = (
        np.array([getattr(p, name) for p in positions])
        for name in ("js", "embedding_distance", "margin")
    )

    def scale(raw: np.ndarray) -> float:
        ratios = np.sort(js / np.maximum(raw, SMALLEST))
        return float(np.quantile(ratios[: math.ceil(len(ratios) * (1 - trim))], 1 - delta))

    c, alpha_kappa = scale(distance), scale(margin)
    smaller = np.minimum(c * distance, alpha_kappa * margin)
    return Bucket(
        c=c,
        alpha_kappa=alpha_kappa,
        tau=float(np.quantile(smaller, 1 - delta)) / slack,
        n=len(positions),
    )


def fit_buckets(
    positions: Sequence[BoundSample], buckets: int, **options: Any
) -> tuple[list[float], list[Bucket]]:
    """Edges that divide the positions into equally full buckets by entropy, and the constants of
    each; `options` as for `fit`. Raises ValueError for too equal positions."""
    entropies = np.array([p.entropy for p in positions])
    edges = [float(np.quantile(entropies, k / buckets)) for k in range(1, buckets)]
    place = np.searchsorted(edges, entropies, side="left")  # as torch.bucketize
    parts = [[p for p, at in zip(positions, place, strict=True) if at == k] for k in range(buckets)]
    if not all(parts):
        raise ValueError(
            f"buckets={buckets}: some are empty because too many entropies are equal; use fewer"
        )
    return edges, [fit(part, **options) for part in parts]
