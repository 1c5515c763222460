"""The rules of production engines and of arXiv 2607.08690 once more: float64, from the formulas of
their sources, one context at a time. A context of a chain has one child or none."""

from __future__ import annotations

import numpy as np

from tests.helpers.rule_reference import Child, Context, Outcome, distance, greedy, softmax


def tested(context: Context, child: Child, accept: float, rejected: np.ndarray) -> Outcome:
    """Accept the child with this probability; after a rejection draw from the positive part of
    `rejected`."""
    if child.u < accept:
        return child, context.p
    return None, np.maximum(rejected, 0.0)


def drawn_from(context: Context, child: Child, pi: np.ndarray) -> Outcome:
    """The lossless test with another distribution in the target's place."""
    return tested(context, child, pi[child.token] / context.q[child.token], pi - context.q)


def ratio(context: Context, child: Child) -> float:
    return context.p[child.token] / (context.q[child.token] if context.sampled else 1.0)


def remainder(context: Context, child: Child) -> np.ndarray:
    """p without q; for a deterministic draft p without its token."""
    return context.p - (context.q if context.sampled else np.eye(len(context.p))[child.token])


def chain(local):
    """Greedy matching at temperature 0, p at a leaf."""

    def rule(context: Context, children: list[Child], **options) -> Outcome:
        if context.greedy:
            return greedy(context, children)
        return local(context, children[0], **options) if children else (None, context.p)

    return rule


@chain
def cactus(context: Context, child: Child, delta: float = 1.0) -> Outcome:
    x, p, q = child.token, context.p, context.q
    h = min(1.0, p[x] + np.sqrt(2 * delta * p[x] * (1 - p[x])))
    raised = p * (1 - h) / (1 - p[x]) if p[x] < 1 else p.copy()
    raised[x] = h
    return tested(context, child, h / q[x], raised - q)


@chain
def lossy(context: Context, child: Child, alpha: float = 0.3) -> Outcome:
    accept = context.p[child.token] / ((1 - alpha) * context.q[child.token])
    return tested(context, child, accept, context.p - context.q)


@chain
def cascade_opt(
    context: Context, child: Child, alpha: float, gate: str = "processed", head: float | None = None
) -> Outcome:
    p, q = context.p, context.q
    both = (p, q) if gate == "processed" else (softmax(context.z), softmax(context.draft_z))
    defer = both[1].max() < both[0].max() - alpha * np.maximum(p - q, 0.0).sum()
    if head is not None:
        defer = defer or p[child.token] < (1 - head) * p.max()
    return tested(context, child, ratio(context, child) if defer else 1.0, p - q)


@chain
def cascade_tok(
    context: Context,
    child: Child,
    alpha: float = 0.35,
    variant: str = "blend",
    top_set: str = "paper",
) -> Outcome:
    p, q, x = context.p, context.q, child.token
    if variant == "lossless_tail":
        return tested(
            context, child, 1.0 if p[x] >= (1 - alpha) * p.max() else ratio(context, child), p - q
        )
    z = context.z if top_set == "paper" else context.processed_z
    if alpha == 0:
        top = np.arange(len(z)) == z.argmax()
    elif alpha == 1:
        top = z > -np.inf
    else:
        top = z >= z.max() + np.log(1 - alpha)
    pi = np.where(top, q, 0.0) + q[~top].sum() * p
    return drawn_from(context, child, pi)


@chain
def r_fuzzy(
    context: Context, child: Child, threshold: float = 0.2, divergence: str = "js"
) -> Outcome:
    p, q = context.p, context.q

    with np.errstate(divide="ignore"):
        nats = distance(divergence, p, q)
    return tested(context, child, 1.0 if nats <= threshold else ratio(context, child), p - q)


@chain
def mentored(
    context: Context, child: Child, budget: float = 0.2, tolerance: float = 0.2
) -> Outcome:
    return drawn_from(context, child, mentored_pi(context.p, context.q, budget, tolerance))


def mentored_pi(p: np.ndarray, q: np.ndarray, budget: float, tolerance: float) -> np.ndarray:
    """The beta of each alpha by bisection on the sum of pi."""

    def of(alpha: float) -> np.ndarray:
        def total(beta: float) -> np.ndarray:
            return np.minimum(np.maximum(q, p / beta), np.where(p > alpha * q, np.inf, p / alpha))

        low, high = 1.0, 1e9
        for _ in range(60):
            middle = np.sqrt(low * high)
            low, high = (middle, high) if total(middle).sum() > 1 else (low, middle)
        return total(high)

    def divergence(other: np.ndarray) -> float:
        with np.errstate(divide="ignore"):
            return distance("kl", p, other)

    if budget == 0:
        return p
    if divergence(q) <= budget * (1 + tolerance):
        return q
    low, high, best = 0.0, 1.0, 1.0
    for _ in range(10):
        alpha = (low + high) / 2
        nats = divergence(of(alpha))
        if nats > budget * (1 + tolerance):
            low = alpha
            continue
        best = high = alpha
        if nats >= budget * (1 - tolerance):
            break
    return of(best)


def ensemble(
    context: Context, children: list[Child], w: float = 0.9, variant: str = "graphcore"
) -> Outcome:
    if context.greedy and variant == "transformers" and children:
        mixed = int((w * softmax(context.z) + (1 - w) * softmax(context.draft_z)).argmax())
        return (children[0] if children[0].token == mixed else None), np.eye(len(context.z))[mixed]
    if context.greedy:
        return greedy(context, children)
    if not children:
        return None, context.p
    return drawn_from(context, children[0], w * context.p + (1 - w) * context.q)


def contrastive(
    context: Context,
    children: list[Child],
    beta: float = 0.5,
    temperature: float | None = None,
    gate: str = "support",
    alpha: float = 0.1,
) -> Outcome:
    """`context.draft_z` is read at a leaf too."""
    t = context.sampling.temperature
    z = ((1 + beta) * context.z - beta * context.draft_z) / (temperature or t)
    inside = (
        context.p > 0 if gate == "support" else context.z >= context.z.max() + t * np.log(alpha)
    )
    pi = softmax(np.where(inside, z, -np.inf))
    return drawn_from(context, children[0], pi) if children else (None, pi)


def threshold(
    context: Context, children: list[Child], single: float = 1.0, acc: float = 1.0
) -> Outcome:
    if context.greedy:
        return greedy(context, children)
    left, mass = context.p.copy(), 0.0
    for child in children:
        p = left[child.token]  # 0 if an earlier sibling had the same token
        if p >= single or child.u < (min(1.0, p / (acc - mass)) if acc > mass else float(p > 0)):
            return child, context.p
        mass += p
        left[child.token] = 0.0
    return None, left if left.sum() > 1e-9 else context.p


@chain
def entropy_verify(
    context: Context, child: Child, threshold: float = 0.95, alpha: float = 0.4
) -> Outcome:
    p0 = softmax(context.z)
    theta = min(np.exp(alpha * (p0 * np.log(p0 + 1e-10)).sum()), threshold)
    return tested(context, child, ratio(context, child) / theta, remainder(context, child))


@chain
def ears(context: Context, child: Child, tolerance: float = 0.3) -> Outcome:
    accept = min(1.0, ratio(context, child) + tolerance * (1 - context.p.max()))
    return tested(context, child, accept, remainder(context, child))
