"""Rules that look along a chain, once more for the reader: float64, one drafted token after the
other, as the sources state them. Each returns how many tokens are kept, and the distribution of the
token after them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tests.helpers import local_reference
from tests.helpers.rule_reference import Child, Context, Tree, lossless, softmax, strict_accepts

Kept = tuple[int, np.ndarray]


@dataclass
class Chain:
    """K drafted tokens with their contexts; the last context is that of the bonus. `state`: what
    the rule knows of the request before the draft."""

    contexts: list[Context]
    children: list[Child]
    state: dict[str, float]

    @classmethod
    def of(cls, tree: Tree) -> Chain:
        nodes = [tree[node] for node in sorted(tree)]
        children = [children[0] for _, children in nodes if children]
        return cls([context for context, _ in nodes], children, nodes[0][0].state)

    def may_relax(self, span: str) -> bool:
        return span == "everywhere" or bool(self.state["thinking"])

    @property
    def tokens(self) -> list[int]:
        return [child.token for child in self.children]

    def best(self, i: int) -> int:
        return int(self.contexts[i].z.argmax())

    def argmax(self, i: int) -> np.ndarray:
        return np.eye(len(self.contexts[i].z))[self.best(i)]

    def matches(self, i: int) -> bool:
        return i < len(self.tokens) and self.tokens[i] == self.best(i)

    def not_strict(self, kept: int) -> tuple[int, int]:
        """Of the kept tokens that the lossless test rejects, how many are not the argmax, and how
        many are."""
        loose = [
            i for i in range(kept) if not strict_accepts(self.contexts[i], [], self.children[i])
        ]
        return sum(not self.matches(i) for i in loose), sum(map(self.matches, loose))


def token_wise(chain: Chain) -> Kept:
    for i, child in enumerate(chain.children):
        accepted, emitted = lossless(chain.contexts[i], [child])
        if accepted is None:
            return i, emitted / emitted.sum()
    return len(chain.children), chain.contexts[-1].p


def fly(
    chain: Chain,
    window: int = 6,
    entropy: float = 0.3,
    no_window: bool = False,
    variant: str = "paper",
    entropy_top_k: int = 3,
) -> Kept:
    size = len(chain.tokens)
    if variant == "vllm":
        return fly_of_vllm(chain, window, entropy, no_window, entropy_top_k)
    for i in range(size):
        if chain.matches(i):
            continue
        top = np.sort(softmax(chain.contexts[i].z))[-3:]
        unsure = entropy <= 0.01 or -sum(p * math.log(p) for p in top) >= entropy
        confirmed = i <= size - 1 - window and all(
            chain.matches(j) for j in range(i + 1, i + window)
        )
        if not (unsure and (no_window or confirmed)):
            return i, chain.argmax(i)
    return size, chain.argmax(size)


def fly_of_vllm(chain: Chain, window: int, entropy: float, no_window: bool, top_k: int) -> Kept:
    """As vLLM does: deferred rejections first, each position for itself, then the native test."""
    size, kept = len(chain.tokens), []
    for i, child in enumerate(chain.children):
        context = chain.contexts[i]
        p = softmax(context.z) if context.greedy else context.p
        native = [strict_accepts(chain.contexts[j], [], chain.children[j]) for j in range(size)]
        likely = [share for share in np.sort(p)[-top_k:] if share > 0]
        unsure = -sum(share * math.log(share) for share in likely) >= entropy
        fits = i + window < size and all(native[i + 1 : i + window + 1])
        deferred = p[child.token] > 0 and unsure and (no_window or fits)
        kept.append(native[i] or deferred)
    if all(kept):
        return size, chain.argmax(size) if chain.contexts[-1].greedy else chain.contexts[-1].p
    first = kept.index(False)
    _, emitted = lossless(chain.contexts[first], [chain.children[first]])
    return first, emitted / emitted.sum()


def asd(
    chain: Chain,
    budget: float = 8.0,
    regret_per_value: float = 0.25,
    max_relaxed: int = 2,
    variant: str = "asd",
) -> Kept:
    spent, size, count, cost = chain.state["spent"], len(chain.tokens), 0, 0.0
    for i, token in enumerate(chain.tokens):
        if chain.matches(i):
            continue
        regret = chain.contexts[i].z.max() - chain.contexts[i].z[token]
        value = size - i if variant == "asd" else (size - i) / size
        left = budget - spent + (1e-9 if variant == "asd" else 0.0)
        if regret / value > regret_per_value or cost + regret > left or count == max_relaxed:
            return i, chain.argmax(i)
        count, cost = count + 1, cost + regret
    return size, chain.argmax(size)


def bild(chain: Chain, rollback: float = 5.0) -> Kept:
    for i, token in enumerate(chain.tokens):
        if -math.log(softmax(chain.contexts[i].z)[token]) > rollback:
            if chain.matches(i):
                break
            return i, chain.argmax(i)
    return len(chain.tokens), chain.argmax(-1)


def relaxed_topk(
    chain: Chain,
    delta: float = 0.6,
    top_n: int = 10,
    span: str = "everywhere",
    begin: int = 0,
    end: int = 0,
) -> Kept:
    delta = delta if chain.may_relax(span) else 0.0
    for i, token in enumerate(chain.tokens):
        p0 = softmax(chain.contexts[i].z)
        if not (token in np.argsort(-p0, kind="stable")[:top_n] and p0[token] >= p0.max() - delta):
            return i, chain.argmax(i)
    return len(chain.tokens), chain.argmax(-1)


def block(chain: Chain) -> Kept:
    if chain.contexts[0].greedy:
        return token_wise(chain)

    def q(i: int) -> np.ndarray:
        """What x_(i+1) was drawn from: a point mass where it is deterministic, nothing behind the
        last token."""
        if i == len(chain.children):
            return np.zeros_like(chain.contexts[i].p)
        return (
            chain.contexts[i].q
            if chain.contexts[i].sampled
            else np.eye(len(chain.contexts[i].p))[chain.tokens[i]]
        )

    kept, prefix = 0, [1.0]
    for i, child in enumerate(chain.children, start=1):
        step = chain.contexts[i - 1].p[child.token] / q(i - 1)[child.token]
        prefix.append(min(1.0, prefix[-1] * step))
        excess = np.maximum(prefix[i] * chain.contexts[i].p - q(i), 0.0).sum()
        whole = excess + 1.0 - prefix[i]
        if child.u < (excess / whole if whole > 0 else 1.0):
            kept = i
    left = np.maximum(prefix[kept] * chain.contexts[kept].p - q(kept), 0.0)
    return kept, left / left.sum()


def near_top(
    chain: Chain,
    by: str = "ratio",
    threshold: float = 0.2,
    top_n: int | None = None,
    from_position: int = 0,
    after_tokens: int = 0,
    protected: tuple[int, ...] = (),
    span: str = "everywhere",
    begin: int = 0,
    end: int = 0,
) -> Kept:
    for i, token in enumerate(chain.tokens):
        context, best = chain.contexts[i], chain.best(i)
        p0 = softmax(context.z)
        near = p0[token] >= threshold * (p0.max() if by == "ratio" else 1.0)
        allowed = (
            chain.may_relax(span)
            and i >= from_position
            and chain.state["answered"] >= after_tokens
            and token not in protected
            and best not in protected
            and (top_n is None or token in np.argsort(-p0, kind="stable")[:top_n])
        )
        accepted, emitted = lossless(context, [chain.children[i]])
        if accepted is None and not (near and allowed):
            return i, emitted / emitted.sum()
    return len(chain.children), chain.contexts[-1].p


def eta(t: int, schedule: str, start: float, end: float, tokens: int, gamma: float = 1.0) -> float:
    if schedule == "step":
        return start if t < tokens else end
    share = min(1.0, t / tokens)
    return start + (end - start) * share ** (gamma if schedule == "power" else 1.0)


def secure_sd(
    chain: Chain,
    relaxed: dict,
    schedule: str = "step",
    start_eta: float = 0.0,
    end_eta: float = 1.0,
    tokens: int = 2,
    gamma: float = 1.0,
) -> Kept:
    """`relaxed`: name and options of a rule of local_reference.py."""
    options = {key: value for key, value in relaxed.items() if key != "name"}

    def looser(context: Context, children: list[Child]) -> local_reference.Outcome:
        return getattr(local_reference, relaxed["name"])(context, children, **options)

    for i, context in enumerate(chain.contexts):
        share = eta(chain.state["answered"] + i, schedule, start_eta, end_eta, tokens, gamma)
        children, kept = chain.children[i : i + 1], None
        for child in children:
            if child.u < share:
                kept, _ = looser(context, [replace(child, u=child.u / share)])
            else:
                kept, _ = lossless(context, [replace(child, u=(child.u - share) / (1 - share))])
        if kept is None:
            never = [replace(child, u=1.0) for child in children]
            parts = [
                (weight, rule(context, never)[1])
                for weight, rule in ((share, looser), (1 - share, lossless))
            ]
            return i, sum(
                weight * emitted / emitted.sum() for weight, emitted in parts if weight > 0
            )
    raise AssertionError("the last context has no child")


def scheduled(
    chain: Chain,
    w: float,
    w_first: float,
    tokens: int = 8,
    schedule: str = "linear",
    variant: str = "graphcore",
) -> Kept:
    """The ensemble with a schedule of w."""
    for i, context in enumerate(chain.contexts):
        weight = eta(chain.state["answered"] + i, schedule, w_first, w, tokens)
        kept, emitted = local_reference.ensemble(
            context, chain.children[i : i + 1], w=weight, variant=variant
        )
        if kept is None:
            return i, emitted / emitted.sum()
    raise AssertionError("the last context has no child")
