"""The rules of production engines and of arXiv 2607.08690 once more: float64, from the formulas of
their sources, one context at a time. A context of a chain has one child or none."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps

import numpy as np

from tests.helpers.rule_reference import (
    distance,
    greedy,
    lossless,
    of_token,
    softmax,
)


def tested(context, child, accept, rejected):
    """Accept the child with this probability; after a rejection draw from the positive part of
    `rejected`."""
    if child.u < accept:
        return child, context.p
    return None, np.maximum(rejected, 0.0)


def drawn_from(context, child, pi):
    """The lossless test with another distribution in the target's place."""
    return tested(context, child, pi[child.token] / context.q[child.token], pi - context.q)


def above_ratio(context, child, raised):
    """The lossless test with `raised` of p/q in place of that ratio; q of a deterministic draft is
    a point mass."""
    q = context.q if context.sampled else np.eye(len(context.p))[child.token]
    return tested(context, child, raised(context.p[child.token] / q[child.token]), context.p - q)


def chain(local):
    """Greedy matching at temperature 0, p at a leaf."""

    @wraps(local)
    def rule(context, children, **options):
        if context.greedy:
            return greedy(context, children)
        return local(context, children[0], **options) if children else (None, context.p)

    return rule


@chain
def cactus(context, child, delta=1.0):
    x, p = child.token, context.p
    h = min(1.0, p[x] + np.sqrt(2 * delta * p[x] * (1 - p[x])))
    raised = p * (1 - h) / (1 - p[x]) if p[x] < 1 else p.copy()
    raised[x] = h
    return drawn_from(context, child, raised)


@chain
def lossy(context, child, alpha=0.3):
    return above_ratio(context, child, lambda ratio: ratio / (1 - alpha))


@chain
def cascade_opt(context, child, alpha, gate="processed", head=None):
    p, q = context.p, context.q
    both = (p, q) if gate == "processed" else (softmax(context.z), softmax(context.draft_z))
    defer = both[1].max() < both[0].max() - alpha * np.maximum(p - q, 0.0).sum()
    if head is not None:
        defer = defer or p[child.token] < (1 - head) * p.max()
    return above_ratio(context, child, lambda ratio: ratio if defer else 1.0)


@chain
def cascade_tok(context, child, alpha=0.35, variant="blend", top_set="paper"):
    p, q = context.p, context.q
    if variant == "lossless_tail":
        near = p[child.token] >= (1 - alpha) * p.max()
        return above_ratio(context, child, lambda ratio: 1.0 if near else ratio)
    z = context.z if top_set == "paper" else context.processed_z
    if alpha == 0:
        top = np.arange(len(z)) == z.argmax()
    elif alpha == 1:
        top = z > -np.inf
    else:
        top = z >= z.max() + np.log(1 - alpha)
    return drawn_from(context, child, np.where(top, q, 0.0) + q[~top].sum() * p)


@chain
def r_fuzzy(context, child, threshold=0.2, divergence="js"):
    with np.errstate(divide="ignore"):
        near = distance(divergence, context.p, context.q) <= threshold
    return above_ratio(context, child, lambda ratio: 1.0 if near else ratio)


@chain
def mentored(context, child, budget=0.2, tolerance=0.2):
    """alpha by bisection on the divergence of pi, the beta of each alpha on the sum of pi."""
    p, q = context.p, context.q

    def pi_of(alpha):
        def total(beta):
            return np.minimum(np.maximum(q, p / beta), np.where(p > alpha * q, np.inf, p / alpha))

        low, high = 1.0, 1e9
        for _ in range(60):
            middle = np.sqrt(low * high)
            low, high = (middle, high) if total(middle).sum() > 1 else (low, middle)
        return total(high)

    def divergence(pi):
        with np.errstate(divide="ignore"):
            return distance("kl", p, pi)

    if budget == 0:
        return drawn_from(context, child, p)
    if divergence(q) <= budget * (1 + tolerance):
        return drawn_from(context, child, q)
    low, high = 0.0, 1.0
    for _ in range(10):
        alpha = (low + high) / 2
        nats = divergence(pi_of(alpha))
        if nats > budget * (1 + tolerance):
            low = alpha
            continue
        high = alpha
        if nats >= budget * (1 - tolerance):
            break
    return drawn_from(context, child, pi_of(high))


def eta(t, schedule, start, end, tokens, gamma=1.0):
    if schedule == "step":
        return start if t < tokens else end
    share = min(1.0, t / tokens)
    return start + (end - start) * share ** (gamma if schedule == "power" else 1.0)


def place(context):
    """How many tokens the answer has where a context's token will stand."""
    return context.state["answered"] + context.depth


def ensemble(
    context, children, w=0.9, variant="graphcore", w_first=None, tokens=8, schedule="linear"
):
    if w_first is not None:
        w = eta(place(context), schedule, w_first, w, tokens)
    if context.greedy and variant == "transformers" and children:
        mixed = int((w * softmax(context.z) + (1 - w) * softmax(context.draft_z)).argmax())
        return of_token(children, mixed), np.eye(len(context.z))[mixed]
    if context.greedy:
        return greedy(context, children)
    if not children:
        return None, context.p
    return drawn_from(context, children[0], w * context.p + (1 - w) * context.q)


def contrastive(context, children, beta=0.5, temperature=None, gate="support", alpha=0.1):
    """`context.draft_z` is read at a leaf too."""
    t = context.sampling.temperature
    z = ((1 + beta) * context.z - beta * context.draft_z) / (temperature or t)
    inside = (
        context.p > 0 if gate == "support" else context.z >= context.z.max() + t * np.log(alpha)
    )
    pi = softmax(np.where(inside, z, -np.inf))
    return drawn_from(context, children[0], pi) if children else (None, pi)


def threshold(context, children, single=1.0, acc=1.0):
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
def entropy_verify(context, child, threshold=0.95, alpha=0.4):
    p0 = softmax(context.z)
    theta = min(np.exp(alpha * (p0 * np.log(p0 + 1e-10)).sum()), threshold)
    return above_ratio(context, child, lambda ratio: ratio / theta)


@chain
def ears(context, child, tolerance=0.3):
    return above_ratio(context, child, lambda ratio: ratio + tolerance * (1 - context.p.max()))


def near(context, top_n, floor, span):
    """The tokens that may be relaxed: of the `top_n` likeliest, with raw p of at least `floor`."""
    p = softmax(context.z)
    likely = np.argsort(-p, kind="stable")[:top_n]
    relaxes = span == "everywhere" or context.state["thinking"]
    return {int(token) for token in likely if relaxes and p[token] >= floor}


def relaxed_topk(context, children, delta=0.6, top_n=10, span="everywhere", begin=0, end=0):
    top = softmax(context.z).max()
    tokens = near(context, top_n, top - delta, span) or near(context, top_n, top, "everywhere")
    return of_token(children, *tokens), context.argmax


def near_top(
    context,
    children,
    by="ratio",
    threshold=0.2,
    top_n=None,
    from_position=0,
    after_tokens=0,
    protected=(),
    span="everywhere",
    begin=0,
    end=0,
):
    top = softmax(context.z).max()
    tokens = near(context, top_n, threshold * (top if by == "ratio" else 1.0), span)
    late = context.depth >= from_position and context.state["answered"] >= after_tokens
    if not late or context.z.argmax() in protected:
        tokens = set()
    kept, emitted = lossless(context, children)
    return kept or of_token(children, *tokens.difference(protected)), emitted


def secure_sd(
    context,
    children,
    relaxed,
    schedule="step",
    start_eta=0.0,
    end_eta=1.0,
    tokens=2,
    gamma=1.0,
):
    """`relaxed`: name and options of a rule of this file."""

    def looser(children):
        options = {key: value for key, value in relaxed.items() if key != "name"}
        return globals()[relaxed["name"]](context, children, **options)

    share = eta(place(context), schedule, start_eta, end_eta, tokens, gamma)
    for child in children:
        if child.u < share:
            kept, _ = looser([replace(child, u=child.u / share)])
        else:
            kept, _ = lossless(context, [replace(child, u=(child.u - share) / (1 - share))])
        if kept is not None:
            return child, context.p
    never = [replace(child, u=1.0) for child in children]
    parts = [(share, looser(never)), (1 - share, lossless(context, never))]
    return None, sum(
        weight * emitted / emitted.sum() for weight, (_, emitted) in parts if weight > 0
    )
