"""Constants of ARC-Decode's bounds, measured on a target's own answers (Algorithm 1 of Appendix A.1).

At a position of an answer, t is the target's most likely token and x a rival; JS is the Jensen-Shannon divergence in
nats between the target's next distributions behind t and behind x, on the union of both top-K sets. With
moved = |W(e_x - e_t)|^2 and margin = (log p(t) - log p(x))^2 over all positions, Q the quantile at 1 - risk level:

    c = Q(JS/moved)    alpha kappa = Q(JS/margin)    tau = Q(min(c moved, alpha kappa margin))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from methods.engine.cache import SlotCache
from methods.engine.language_model import LanguageModel
from methods.rules._arc_constants import EPSILON, Bucket, entropy
from methods.sampling import Sampling

Bound = Literal["none", "clopper_pearson", "wilson"]
Rival = Literal["runner_up", "uniform"]
SMALLEST = 1e-12
"""Of `moved` and `margin`: a tie has none, and its ratio would be infinite."""


@dataclass(frozen=True, slots=True)
class Position:
    """One measured position: JS in nats, |W(e_x - e_t)|^2, (log p(t) - log p(x))^2, and the entropy of p over ln V."""

    js: float
    moved: float
    margin: float
    entropy: float


def inverse_std(embedding: Tensor) -> Tensor:
    """[V, H] -> [H] float32, the diagonal of W."""
    return 1.0 / embedding.float().std(0).clamp(min=1e-8)


def union_js(z1: Tensor, z2: Tensor, top: int) -> Tensor:
    """JS in nats of two distributions given as logits [V], both restricted to the union of their `top` best tokens."""
    k = min(top, len(z1))
    union = torch.cat([z1.topk(k).indices, z2.topk(k).indices]).unique()
    p, q = z1[union].double().softmax(-1), z2[union].double().softmax(-1)
    return (torch.special.entr((p + q) / 2) - (torch.special.entr(p) + torch.special.entr(q)) / 2).sum().clamp(min=0.0)


@torch.inference_mode()
def measure(target: LanguageModel, context: Sequence[int], answer: Sequence[int], sampling: Sampling, *, count: int,
            top: int, rival: Rival, rng: np.random.Generator) -> list[Position]:
    """Up to `count` positions of an answer, drawn evenly. Both tokens are tried by one forward of two siblings."""
    ids = [*context, *answer]
    cache = target.new_cache(1, len(ids) + 2)
    keep = torch.arange(len(context) - 1, len(ids) - 1, device=target.device)
    logits = target.forward(torch.tensor([ids], device=target.device), cache, keep=keep).logits[0]
    white, embedding = inverse_std(target.embedding), target.embedding
    chosen = sorted(rng.choice(len(answer), min(count, len(answer)), replace=False), reverse=True)
    found = []
    for at in chosen:  # from the back: what is tried is written over what comes after it
        p = sampling.probs(logits[at])
        best = int(logits[at].argmax())
        other = _rival(logits[at], best, rival, top, rng)
        js = _behind(target, cache, len(context) + int(at), (best, other), top)
        moved = ((embedding[other].float() - embedding[best].float()) * white).square().sum()
        margin = (p[best].clamp(min=EPSILON).log() - p[other].clamp(min=EPSILON).log()).square()
        found.append(Position(js, float(moved), float(margin), float(entropy(p))))
    return found


@torch.inference_mode()
def next_step_js(target: LanguageModel, context: Sequence[int], answer: Sequence[int], rivals: Mapping[int, int],
                 top: int) -> dict[int, float]:
    """Place in the answer -> JS in nats between what follows the token there and what follows its rival."""
    ids = [*context, *answer]
    cache = target.new_cache(1, len(ids) + 2)
    target.forward(torch.tensor([ids], device=target.device), cache, keep=1)
    return {at: _behind(target, cache, len(context) + at, (answer[at], rivals[at]), top)
            for at in sorted(rivals, reverse=True)}  # from the back, as above


def _behind(target: LanguageModel, cache: SlotCache, length: int, tokens: tuple[int, int], top: int) -> float:
    """JS between what follows two tokens, each tried behind the cache's first `length`; what comes after is lost."""
    cache.lengths = [length]
    apart = torch.eye(2, dtype=torch.bool, device=target.device)[None]
    level = torch.zeros(1, 2, dtype=torch.long, device=target.device)
    pair = torch.tensor([list(tokens)], device=target.device)
    return float(union_js(*target.forward(pair, cache, ancestors=apart, depth=level).logits[0], top))


def _rival(logits: Tensor, best: int, rival: Rival, top: int, rng: np.random.Generator) -> int:
    """The runner-up, or one of the `top` best tokens that is not the best."""
    ranked = [token for token in logits.topk(min(top, len(logits))).indices.tolist() if token != best]
    return ranked[0] if rival == "runner_up" else int(rng.choice(ranked))


def upper_quantile(values: np.ndarray, delta: float, bound: Bound, confidence: float) -> float:
    """The 1 - delta quantile, or an upper confidence bound on it: the smallest value of which it is sure, at this
    confidence, that no more than delta of all positions exceed it. Raises ValueError where there are too few values."""
    if bound == "none":
        return float(np.quantile(values, 1.0 - delta))
    n, ordered = len(values), np.sort(values)
    above = n - np.arange(1, n + 1)  # how many values exceed the k-th
    if bound == "clopper_pearson":
        share = np.where(above < n, stats.beta.ppf(confidence, above + 1, np.maximum(n - above, 1)), 1.0)
    else:
        z = stats.norm.ppf(confidence)
        rate = above / n
        share = (rate + z * z / (2 * n) + z * np.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))) / (1 + z * z / n)
    enough = np.flatnonzero(share <= delta)
    if not len(enough):
        raise ValueError(f"{n} positions are too few for a {bound} bound with delta={delta} at confidence "
                         f"{confidence}: measure more prompts, use fewer buckets, or finite_sample=none")
    return float(ordered[enough[0]])


def fit(positions: Sequence[Position], *, delta: float, bound: Bound = "none", confidence: float = 0.95,
        trim: float = 0.0, slack: float = 1.0) -> Bucket:
    """The constants of some positions. `trim`: share of the largest ratios that is left out; `slack`: tau is divided
    by it (the released script has 0.005 and 1 - theta)."""
    js, moved, margin = (np.array([getattr(p, name) for p in positions]) for name in ("js", "moved", "margin"))

    def scale(raw: np.ndarray) -> float:
        ratios = np.sort(js / np.maximum(raw, SMALLEST))
        return upper_quantile(ratios[:math.ceil(len(ratios) * (1 - trim))], delta, bound, confidence)
    c, alpha_kappa = scale(moved), scale(margin)
    smaller = np.minimum(c * moved, alpha_kappa * margin)
    return Bucket(c=c, alpha_kappa=alpha_kappa, tau=upper_quantile(smaller, delta, bound, confidence) / slack,
                  n=len(positions))


def fit_buckets(positions: Sequence[Position], buckets: int, **options) -> tuple[list[float], list[Bucket]]:
    """Edges that part the positions' entropies into equally full buckets, and the constants of each."""
    entropies = np.array([p.entropy for p in positions])
    edges = [float(np.quantile(entropies, k / buckets)) for k in range(1, buckets)]
    place = np.searchsorted(edges, entropies, side="left")  # as torch.bucketize does
    parts = [[p for p, at in zip(positions, place, strict=True) if at == k] for k in range(buckets)]
    if not all(parts):
        raise ValueError(f"buckets={buckets}: some have no position, too many entropies are equal; use fewer")
    return edges, [fit(part, **options) for part in parts]
