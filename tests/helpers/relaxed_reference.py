"""The rules of DropMatch, ARC-Decode, AutoJudge, Judge and coarse-graining once more: float64,
straight from the formulas, one context and one child at a time. The residual rules are those of
rule_reference.py."""

from __future__ import annotations

import numpy as np

from methods.sampling import Sampling
from tests.helpers.rule_reference import (
    distance,
    drafted_with,
    fsd,
    greedy,
    of_token,
    process,
    ratio,
    softmax,
    surely,
)


def coarse_grained(context, children, groups, token):
    """`groups` must cover all tokens here. The draw of the group and of the token in it are
    integrated out."""
    p0 = context.p
    member = np.array([[v in group for v in range(len(p0))] for group in groups], dtype=float)
    share = member / member.sum(0)  # [G, V]: each group's part of each token
    mass0 = share @ p0
    p = mass0
    for child in children:
        own = np.flatnonzero(member[:, child.token])
        q = share @ context.q if context.sampled else share[:, child.token]
        kept = {g: min(1.0, p[g] / q[g]) / len(own) for g in own}
        group_kept = sum(kept.values())
        inside = {g: share[g] * p0 / mass0[g] if mass0[g] > 0 else np.zeros_like(p0) for g in own}
        drawn = sum(kept[g] * inside[g] for g in own)
        if child.u < (group_kept if token == "keep" else drawn[child.token]):
            return child, p0
        if token == "redraw" and child.u < group_kept:  # another token was drawn
            drawn[child.token] = 0.0
            return None, drawn
        left = np.maximum(p - q, 0.0)
        p = left / left.sum() if left.sum() > 1e-12 else left
    weights = sum(p[g] * share[g] * p0 / mass0[g] for g in range(len(groups)) if mass0[g] > 0)
    return None, weights if weights.sum() > 0 else p0


def word(u, counter):
    """The random word of a context's uniform number and a counter: two rounds of xor-shift-multiply
    on 32 bits."""

    def mix(x):
        for multiplier in (0x21F0AAAD, 0x735A2D97):
            x = ((x ^ x >> 15) * multiplier) % 2**32
        return x ^ x >> 15

    return mix((mix(int(u * 2**24) + 1) + counter) % 2**32)


def dropout_logits(u, hidden, weight, heads, p_drop):
    """[K, V] logits of the dropout heads in one context."""
    found = []
    for head in range(heads):
        mask = [word(u, head * len(hidden) + unit) >= p_drop * 2**32 for unit in range(len(hidden))]
        found.append(weight @ (hidden * np.array(mask) / (1 - p_drop)))
    return np.stack(found)


def dropmatch(
    context,
    children,
    weight,
    variant="js",
    heads=5,
    p_drop=0.3,
    selection="argmax",
    nucleus=0.9,
):
    u, hidden = context.u, context.hidden
    logits = dropout_logits(u, hidden, weight, heads, p_drop)
    tokens = [int(z.argmax()) for z in logits]
    if selection == "nucleus":
        sampling = Sampling(context.sampling.temperature or 1.0, top_p=nucleus)
        for head, z in enumerate(logits):
            p = softmax(process(z, sampling))
            at = word(u, heads * len(hidden) + head) / 2**32
            tokens[head] = int(np.flatnonzero(np.cumsum(p) > at * p.sum())[0])
    if variant == "naive":
        return of_token(children, *tokens), context.p
    if variant == "js" and children:
        centroid = softmax(logits.mean(0))
        if distance("js", softmax(context.draft_z), centroid) <= max(
            distance("js", softmax(z), centroid) for z in logits
        ):
            return children[0], context.p
    majority = max(tokens, key=tokens.count)  # the first of equal counts
    return of_token(children, majority), context.p


def dropout_head(context, children, weight, head=1, p_drop=0.3):
    """One of DropMatch's heads in the target's place."""
    said = int(dropout_logits(context.u, context.hidden, weight, head, p_drop)[-1].argmax())
    return of_token(children, said), np.eye(len(weight))[said]


def arc_bounds(context, token, embedding, constants):
    """U by embeddings, U by logits and tau of one token in one context."""
    p = context.p
    entropy = -sum(x * np.log(x) for x in p if x > 0) / np.log(len(p))
    bucket = constants.buckets[sum(entropy > edge for edge in constants.edges)]
    best = int(context.z.argmax())
    moved = np.sum((np.array(constants.inv_std) * (embedding[token] - embedding[best])) ** 2)
    margin = np.log(max(p[best], 1e-10)) - np.log(max(p[token], 1e-10))
    return bucket.c * moved, bucket.alpha_kappa * margin**2, bucket.tau


def arc(
    context,
    children,
    embedding,
    constants,
    theta=0.3,
    variant="paper",
    q_mode="exact",
    keep=0.25,
    floor=0.05,
):
    bounds = {}
    for child in children:
        *both, tau = arc_bounds(context, child.token, embedding, constants)
        bounds[child.node] = min(both), tau
    if variant == "paper":
        near = {node for node, (u, tau) in bounds.items() if 1 - u / tau >= theta}
        return surely(context, children, near, q_mode)
    if context.greedy:
        return greedy(context, children)
    p, left = context.p, context.p.copy()
    for child in children:
        strict = ratio(context, p, child, q_mode)
        u, tau = bounds[child.node]
        budget = tau * (1 - theta)
        loose = strict + keep * (1 - strict) * (1 - u / budget)
        again = p[child.token] >= floor and u < budget and child.u <= loose
        if child.u < strict or again:
            return child, p
        left[child.token] = max(0.0, p[child.token] - drafted_with(context, child, q_mode))
    return None, left if left.sum() > 0 else p


def important(child, classifier):
    """P(important) from the states at the draft token's own position."""
    x = child.states[1] if classifier.features == "target" else np.concatenate(child.states)
    scaled = (x - np.array(classifier.mean)) / np.array(classifier.scale)
    return 1 / (1 + np.exp(-(scaled @ np.array(classifier.coef) + classifier.intercept)))


def autojudge(context, children, weights, threshold=0.5):
    unimportant = [c for c in children if important(c, weights) < threshold]
    exact, emitted = greedy(context, children)
    return exact or next(iter(unimportant), None), emitted


def judge(context, children, weights, threshold=0.5):
    near = {c.node for c in children if 1 - important(c, weights) > threshold}
    return surely(context, children, near)


def either(context, children, first, second):
    """Of `random` and `fsd`."""
    close, _ = fsd(context, children, second["divergence"], second["threshold"])
    return next((c for c in children if c.u < first["rate"] or close), None), context.p
