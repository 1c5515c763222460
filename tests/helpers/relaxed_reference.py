"""The rules of DropMatch, ARC-Decode, AutoJudge, Judge, coarse-graining and traversal verification
once more: float64, straight from the formulas, one context and one child at a time. `walk` and the
residual rules are those of rule_reference.py."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from methods.rules.arc import Constants
from methods.rules.classifiers import Classifier
from methods.sampling import Sampling
from tests.helpers.rule_reference import (
    Child,
    Context,
    Expected,
    Outcome,
    Tree,
    distance,
    drafted_with,
    fsd,
    greedy,
    of_token,
    process,
    ratio,
    softmax,
    strict_accepts,
    surely,
    walk,
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


def word(u: float, counter: int) -> int:
    """The random word of a context's uniform number and a counter: two rounds of xor-shift-multiply
    on 32 bits."""

    def mix(x: int) -> int:
        for multiplier in (0x21F0AAAD, 0x735A2D97):
            x = ((x ^ x >> 15) * multiplier) % 2**32
        return x ^ x >> 15

    return mix((mix(int(u * 2**24) + 1) + counter) % 2**32)


def dropout_logits(
    u: float, hidden: np.ndarray, weight: np.ndarray, heads: int, p_drop: float
) -> np.ndarray:
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


def arc_bound(
    context: Context, token: int, embedding: np.ndarray, constants: Constants
) -> tuple[float, float]:
    """(U, tau) of one token in one context."""
    p = context.p
    entropy = -sum(x * np.log(x) for x in p if x > 0) / np.log(len(p))
    bucket = constants.buckets[sum(entropy > edge for edge in constants.edges)]
    best = int(context.z.argmax())
    moved = np.sum((np.array(constants.inv_std) * (embedding[token] - embedding[best])) ** 2)
    margin = np.log(max(p[best], 1e-10)) - np.log(max(p[token], 1e-10))
    return min(bucket.c * moved, bucket.alpha_kappa * margin**2), bucket.tau


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
    bounds = {c.node: arc_bound(context, c.token, embedding, constants) for c in children}
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


def important(child: Child, classifier: Classifier) -> float:
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


def typical(tree: Tree, variant="paper", epsilon=0.09, delta=0.3, correction="greedy") -> Expected:
    """All paths whose every node is accepted; the longest, then the likeliest, then the first in
    node order."""
    shift = 1e-5 if variant == "released" else 0.0
    paths, queue = [], [([0], 0.0, (0, 0))]
    while queue:
        path, log_p, (relaxed, greedier) = queue.pop()
        paths.append((path, log_p, (relaxed, greedier)))
        context, children = tree[path[-1]]
        raw = not context.greedy and variant == "released"
        p = softmax(context.z / context.sampling.temperature) if raw else context.p
        spread = math.exp(sum(x * math.log(x + shift) for x in p if x > 0))
        for number, child in enumerate(children):
            if p[child.token] > min(epsilon, delta * spread):
                strict = strict_accepts(context, children[:number], child)
                argmax = child.token == context.z.argmax()
                counts = (
                    relaxed + (not strict and not argmax),
                    greedier + (not strict and argmax),
                )
                queue.append(([*path, child.node], log_p + math.log(p[child.token]), counts))
    path, _, not_strict = min(paths, key=lambda entry: (-len(entry[0]), -entry[1], entry[0][-1]))
    context = tree[path[-1]][0]
    return path, context.argmax if correction == "greedy" else context.p, not_strict


def tilted(tree: Tree, lam: float = 1.0) -> Expected:
    """Each context's law by recursion from the leaves; of a drawn token by a root finder."""

    def law(node: int) -> tuple[np.ndarray, float]:
        """R and V of a context."""
        context, children = tree[node]
        if not children:
            return context.p, 0.0
        if context.sampled:
            return drawn_law(context.p, context.q, lam), 0.0
        weights = np.array(context.p)
        for number, child in enumerate(children):
            if child.token not in [one.token for one in children[:number]]:
                weights[child.token] *= np.exp((1 + law(child.node)[1]) / lam)
        return weights / weights.sum(), lam * float(np.log(weights.sum()))

    def local(context: Context, children: list[Child]) -> Outcome:
        if context.greedy:
            return greedy(context, children)
        r, _ = law(next(node for node, (other, _) in tree.items() if other is context))
        left = np.array(r)
        for child in children:
            if context.sampled:
                if child.u < min(1.0, r[child.token] / context.q[child.token]):
                    return child, left
                left = np.maximum(r - context.q, 0.0)
            else:
                if left.sum() > 1e-12 and child.u < left[child.token] / left.sum():
                    return child, left
                left[child.token] = 0.0
        return None, left if left.sum() > 1e-12 else context.p

    return walk(tree, local)


def drawn_law(p: np.ndarray, q: np.ndarray, lam: float) -> np.ndarray:
    """The median of c p, q and c p exp(1/lam), which sums to 1."""

    def at(log_c: float) -> np.ndarray:
        return np.median([np.exp(log_c) * p, q, np.exp(log_c + 1 / lam) * p], axis=0)

    r = at(brentq(lambda log_c: at(log_c).sum() - 1, -1 / lam - 1, 1.0, xtol=1e-14))
    return r / r.sum()


def traversal(tree: Tree) -> Expected:
    """Nodes are tested depth first, children before their parent, and the root last; siblings are
    independent draws."""
    if tree[0][0].greedy:
        return walk(tree, greedy)
    emitted: dict[int, np.ndarray] = {}
    order = _visit(tree, 0, 1.0, emitted)
    u = {child.node: child.u for _, children in tree.values() for child in children}
    last = next(node for node, alpha in order if node == 0 or u[node] < alpha)
    parent = {child.node: node for node, (_, children) in tree.items() for child in children}
    path = [last]
    while path[0]:
        path.insert(0, parent[path[0]])
    return path, emitted[last], (0, 0)


def _visit(
    tree: Tree, node: int, alpha: float, emitted: dict[int, np.ndarray]
) -> list[tuple[int, float]]:
    """Nodes in the order of their tests, each with its probability of acceptance; what is emitted
    behind each."""
    context, children = tree[node]
    m, order = context.p, []
    for child in children:
        order += _visit(
            tree, child.node, min(1.0, alpha * m[child.token] / context.q[child.token]), emitted
        )
        left = np.maximum(alpha * m - context.q, 0.0)
        total, whole = left.sum(), left.sum() + 1.0 - alpha
        alpha, m = total / whole if whole > 0 else 1.0, left / total if total > 0 else m
    emitted[node] = m
    return [*order, (node, alpha)]
