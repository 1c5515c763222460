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
    of the request before the draft; how many drafted tokens stand before it."""

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
    depth: int

    @property
    def greedy(self) -> bool:
        return self.sampling.greedy

    @property
    def argmax(self) -> np.ndarray:
        """All mass on the likeliest token."""
        return np.eye(len(self.z))[self.z.argmax()]


Tree = dict[int, tuple[Context, list[Child]]]
Outcome = tuple[Child | None, np.ndarray]
"""The kept child of a context, and what the token is drawn from that follows it."""
Local = Callable[..., Outcome]
"""A rule of one context, `rule(context, children, **options)`, with defaults of its own."""
Expected = tuple[list[int], np.ndarray, tuple[int, int]]
"""Kept nodes, distribution of the next token, numbers of relaxed and of greedier nodes."""


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max())
    return e / e.sum()


def process(z: np.ndarray, sampling: Sampling) -> np.ndarray:
    if sampling.greedy:
        return z
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
                process(z, v.sampling),
                draft_z,
                distribution(draft_z, v.sampling) if children else None,
                draft.sampled,
                v.sampling,
                float(v.u[row, node]),
                hidden[node],
                state,
                found[parents[node]][0].depth + 1 if node else 0,
            ),
            children,
        )
    return found


def walk(tree: Tree, local: Local, **options) -> Expected:
    """Path of kept nodes, emitted distribution, and of the path nodes that the lossless test
    rejects the number whose token is not the target's argmax (relaxed) and the number whose token
    is (greedier)."""
    path, not_strict = [0], [0, 0]
    while True:
        context, children = tree[path[-1]]
        child, weights = local(context, children, **options)
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
    return child.u < ratio(context, p, child)


def _residual(context, p, rejected):
    """What is left of p after a rejection; None if nothing is, that is if the child cannot have
    been rejected."""
    left = np.maximum(p - context.q, 0.0) if context.sampled else p.copy()
    if not context.sampled:
        left[rejected.token] = 0.0
    return left / left.sum() if left.sum() > 1e-9 else None


def of_token(children: list[Child], *tokens: int) -> Child | None:
    """The first child with one of these tokens."""
    return next((child for child in children if child.token in tokens), None)


def greedy(context: Context, children: list[Child]) -> Outcome:
    return of_token(children, context.z.argmax()), context.argmax


def drafted_with(context: Context, child: Child, q_mode: str = "exact") -> float:
    """The probability by which p is divided: of a deterministic child 1, or the draft's."""
    if context.sampled:
        return context.q[child.token]
    return child.q if q_mode == "draft" else 1.0


def ratio(context: Context, p: np.ndarray, child: Child, q_mode: str = "exact") -> float:
    return min(1.0, p[child.token] / drafted_with(context, child, q_mode))


def lossless(context, children, q_mode="exact"):
    if context.greedy:
        return greedy(context, children)
    p = context.p
    for child in children:
        if child.u < ratio(context, p, child, q_mode):
            return child, p
        p = _residual(context, p, child)
    return None, p


def mars(
    context,
    children,
    variant="algorithm1",
    theta=0.9,
    indicator="logit_ratio",
    q_mode="exact",
):
    z = context.processed_z if variant == "released" else context.z
    v2, v1 = np.argsort(z)[-2:]
    z1, z2 = z[v1], z[v2]
    released_ratio = z2 / (z1 + 1e-10) > theta
    close = {
        "logit_ratio": released_ratio if variant == "released" else z1 > 0 and z2 / z1 > theta,
        "prob_ratio": np.exp(z2 - z1) > theta,
        "logit_margin": 1 - (z1 - z2) > theta,
    }[indicator]
    second = of_token(children, v2) if close else None
    if variant == "algorithm1":
        return of_token(children, v1) or second, np.eye(len(z))[v1]
    if variant == "released" and context.greedy:
        return greedy(context, children)
    near = {c.node for c in children if c.token in (v1, v2) and close}
    if close and variant == "released":
        return of_token(children, v1, v2), context.p
    return surely(context, children, near, q_mode)


def surely(context, children, nodes, q_mode="exact"):
    """The lossless rule, but that these nodes are accepted whatever their numbers are."""
    if context.greedy:
        best = context.z.argmax()
        return next((c for c in children if c.node in nodes or c.token == best), None), context.p
    numbered = [replace(c, u=-1.0) if c.node in nodes else c for c in children]
    found, p = lossless(context, numbered, q_mode)
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
    context,
    children,
    divergence="js_released",
    threshold=0.4,
    processed=False,
    correction="sample",
):
    emitted = context.argmax if correction == "greedy" else context.p
    if not children:
        return None, emitted
    if processed:
        p, q = ((x + 1e-10) / (x + 1e-10).sum() for x in (context.p, context.q))
    else:
        p, q = softmax(context.z), softmax(context.draft_z)
    return (children[0] if distance(divergence, p, q) <= threshold else None), emitted


def random(context, children, rate):
    return next((c for c in children if c.u < rate), None), context.p
