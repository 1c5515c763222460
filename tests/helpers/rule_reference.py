"""Acceptance rules once more, written for the reader instead of the machine: float64, one context
and one child at a time, walking the tree from its root, with residual distributions carried along
instead of closed forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from methods.rules.verification import Verification
from methods.sampling import Sampling


@dataclass
class Child:
    """A drafted token: its node, its random number, its draft probability; `states`: the hidden
    states of draft model and target at its own position."""

    node: int
    token: int
    u: float
    q: float | None
    states: tuple[np.ndarray | None, np.ndarray | None] = (None, None)


@dataclass
class Context:
    """One node with its children: raw logits z, processed p and processed logits; the draft's raw
    logits and processed q; its own random number and the target's hidden state; what the rule knows
    of the request before the draft."""

    z: np.ndarray
    p: np.ndarray
    processed_z: np.ndarray
    draft_z: np.ndarray
    q: np.ndarray | None
    sampled: bool
    sampling: Sampling
    u: float
    hidden: np.ndarray | None
    state: dict[str, float]

    @property
    def greedy(self) -> bool:
        return self.sampling.greedy


Tree = dict[int, tuple[Context, list[Child]]]
Outcome = tuple[Child | None, np.ndarray]
"""The kept child of a context, and what the token is drawn from that follows it."""
Local = Callable[[Context, list[Child]], Outcome]
Expected = tuple[list[int], np.ndarray, tuple[int, int]]
"""Kept nodes, distribution of the next token, numbers of relaxed and of greedier nodes."""


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max())
    return e / e.sum()


def process(z: np.ndarray, sampling: Sampling) -> np.ndarray:
    z = z / sampling.temperature
    if 0 < sampling.top_k < len(z):
        z = np.where(z < np.sort(z)[-sampling.top_k], -np.inf, z)
    if sampling.top_p < 1:
        order = np.argsort(z)
        drop = order[np.cumsum(softmax(z)[order]) <= 1 - sampling.top_p]
        z = z.copy()
        z[[i for i in drop if i != order[-1]]] = -np.inf
    return z


def distribution(z: np.ndarray, sampling: Sampling) -> np.ndarray:
    return np.eye(len(z))[z.argmax()] if sampling.greedy else softmax(process(z, sampling))


def contexts(v: Verification, row: int) -> Tree:
    """Every valid node of a row with its valid children in draft order."""
    draft, found = v.draft, {}
    parents = draft.parents.expand(draft.tokens.shape)[row].tolist()
    state = {name: float(value[row]) for name, value in v.state.items()}
    hidden, draft_hidden = (
        [None] * draft.nodes if x is None else x[row].double().numpy()
        for x in (v.hidden_or_none, draft.hidden)
    )
    for node in range(draft.nodes):
        if not draft.valid[row, node]:
            continue
        children = [
            Child(
                i,
                int(draft.tokens[row, i]),
                float(v.u[row, i]),
                float(draft.q[row, i]),
                (draft_hidden[i], hidden[i]),
            )
            for i in range(draft.nodes)
            if parents[i] == node and draft.valid[row, i]
        ]
        z, draft_z = v.logits[row, node].double().numpy(), draft.logits[row, node].double().numpy()
        found[node] = (
            Context(
                z,
                distribution(z, v.sampling),
                z if v.sampling.greedy else process(z, v.sampling),
                draft_z,
                distribution(draft_z, v.sampling) if children else None,
                draft.sampled,
                v.sampling,
                float(v.u[row, node]),
                hidden[node],
                state,
            ),
            children,
        )
    return found


def walk(tree: Tree, local: Local) -> Expected:
    """Path of kept nodes, emitted distribution, and of the path nodes that the lossless test
    rejects the number whose token is not the target's argmax (relaxed) and the number whose token
    is (greedier)."""
    path, not_strict = [0], [0, 0]
    while True:
        context, children = tree[path[-1]]
        child, weights = local(context, children)
        if child is None:
            return path, weights / weights.sum(), tuple(not_strict)
        before = children[: children.index(child)]
        if not strict_accepts(context, before, child):
            not_strict[int(child.token == context.z.argmax())] += 1
        path.append(child.node)


def strict_accepts(context: Context, before: list[Child], child: Child) -> bool:
    """The strict test of a child, given that those before it were rejected; False if it could not
    get that far."""
    if context.greedy:
        return child.token == context.z.argmax()
    p = context.p
    for other in before:
        p = _residual(context, p, other)
        if p is None:
            return False
    return child.u < min(1.0, p[child.token] / (context.q[child.token] if context.sampled else 1.0))


def _residual(context: Context, p: np.ndarray, rejected: Child) -> np.ndarray | None:
    """What is left of p after a rejection; None if nothing is, that is if the child cannot have
    been rejected."""
    left = (
        p - context.q if context.sampled else np.where(np.arange(len(p)) == rejected.token, 0.0, p)
    )
    left = np.maximum(left, 0.0)
    return left / left.sum() if left.sum() > 1e-9 else None


def greedy(context: Context, children: list[Child]) -> Outcome:
    best = int(context.z.argmax())
    return next((c for c in children if c.token == best), None), np.eye(len(context.z))[best]


def drafted_with(context: Context, child: Child, q_mode: str) -> float:
    """The probability by which p is divided: of a deterministic child 1, or the draft's."""
    if context.sampled:
        return context.q[child.token]
    return child.q if q_mode == "draft" else 1.0


def lossless(context: Context, children: list[Child], q_mode: str = "exact") -> Outcome:
    if context.greedy:
        return greedy(context, children)
    p = context.p
    for child in children:
        if child.u < min(1.0, p[child.token] / drafted_with(context, child, q_mode)):
            return child, p
        p = _residual(context, p, child)
    return None, p


def mars(
    context: Context,
    children: list[Child],
    variant: str = "algorithm1",
    theta: float = 0.9,
    indicator: str = "logit_ratio",
    q_mode: str = "exact",
) -> Outcome:
    z = context.processed_z if variant == "released" else context.z
    v2, v1 = np.argsort(z)[-2:]
    z1, z2 = z[v1], z[v2]
    match indicator:
        case "logit_ratio":
            close = (
                z2 / (z1 + 1e-10) > theta if variant == "released" else z1 > 0 and z2 / z1 > theta
            )
        case "prob_ratio":
            close = np.exp(z2 - z1) > theta
        case "logit_margin":
            close = 1 - (z1 - z2) > theta
    if variant == "algorithm1":
        by_token = {c.token: c for c in reversed(children)}
        child = by_token.get(v1, by_token.get(v2) if close else None)
        return child, np.eye(len(z))[v1]
    if variant == "released" and context.greedy:
        return greedy(context, children)
    near = [c for c in children if c.token in (v1, v2)] if close else []
    if close and variant == "released":
        return (near[0] if near else None), context.p
    return surely(context, children, {c.node for c in near}, q_mode)


def surely(
    context: Context, children: list[Child], nodes: set[int], q_mode: str = "exact"
) -> Outcome:
    """The lossless rule, but that these nodes are accepted whatever their numbers are."""
    if context.greedy:
        best = context.z.argmax()
        return next((c for c in children if c.node in nodes or c.token == best), None), context.p
    found, p = lossless(
        context, [replace(c, u=-1.0) if c.node in nodes else c for c in children], q_mode
    )
    return next((c for c in children if found and c.node == found.node), None), p


def kl(a: np.ndarray, b: np.ndarray) -> float:
    keep = a > 0
    return float(np.sum(a[keep] * (np.log(a[keep]) - np.log(b[keep]))))


def distance(kind: str, p: np.ndarray, q: np.ndarray) -> float:
    if kind.startswith("topk_"):
        top = np.argsort(p)[::-1][:50]
        rest = np.setdiff1d(np.arange(len(p)), top)
        p, q = (np.append(x[top], x[rest].sum()) for x in (p, q))
    m = (p + q) / 2
    match kind.removeprefix("topk_"):
        case "js":
            return (kl(p, m) + kl(q, m)) / 2
        case "js_released":
            return (kl(m, p) + kl(m, q)) / 2
        case "kl":
            return kl(p, q)
        case "kl_released":
            return kl(q, p)
        case "tv":
            return float(np.abs(p - q).sum() / 2)
    raise ValueError(kind)


def fsd(
    context: Context,
    children: list[Child],
    divergence: str = "js_released",
    threshold: float = 0.4,
    processed: bool = False,
    correction: str = "sample",
) -> Outcome:
    emitted = np.eye(len(context.z))[context.z.argmax()] if correction == "greedy" else context.p
    if not children:
        return None, emitted
    if processed:
        p, q = ((x + 1e-10) / (x + 1e-10).sum() for x in (context.p, context.q))
    else:
        p, q = softmax(context.z), softmax(context.draft_z)
    return (children[0] if distance(divergence, p, q) <= threshold else None), emitted


def random(context: Context, children: list[Child], rate: float) -> Outcome:
    return next((c for c in children if c.u < rate), None), context.p
