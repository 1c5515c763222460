"""Rules that look along a chain, once more for the reader: float64, one drafted token after the
other, as the sources state them. Each is given the chain and its options, and returns how many
tokens are kept and the distribution of the token after them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import wraps

import numpy as np

from tests.helpers.rule_reference import (
    Child,
    Context,
    Expected,
    Tree,
    greedy,
    lossless,
    softmax,
    strict_accepts,
    walk,
)


@dataclass
class Chain:
    """K drafted tokens with their contexts; the last context is that of the bonus."""

    contexts: list[Context]
    children: list[Child]

    @classmethod
    def of(cls, tree: Tree) -> Chain:
        nodes = [tree[node] for node in sorted(tree)]
        return cls(
            [context for context, _ in nodes], [child for _, found in nodes for child in found]
        )

    @property
    def tokens(self) -> list[int]:
        return [child.token for child in self.children]

    def matches(self, i: int) -> bool:
        return i < len(self.tokens) and self.tokens[i] == self.contexts[i].z.argmax()

    def strict(self, i: int) -> bool:
        return strict_accepts(self.contexts[i], [], self.children[i])

    def rejected(self, i: int) -> tuple[int, np.ndarray]:
        """The lossless rule's own token behind i kept ones."""
        return i, lossless(self.contexts[i], self.children[i : i + 1])[1]

    def argmax(self, i: int) -> tuple[int, np.ndarray]:
        return i, self.contexts[i].argmax


def along(rule):
    """The rule of a tree that is a chain; of the kept tokens that the lossless test rejects, it
    counts those that are not the argmax, and those that are."""

    @wraps(rule)
    def of_tree(tree: Tree, **options) -> Expected:
        chain = Chain.of(tree)
        kept, emitted = rule(chain, **options)
        loose = [chain.matches(i) for i in range(kept) if not chain.strict(i)]
        return list(range(kept + 1)), emitted / emitted.sum(), (loose.count(False), sum(loose))

    return of_tree


@along
def fly(chain, window=6, entropy=0.3, no_window=False, variant="paper", entropy_top_k=3):
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
            return chain.argmax(i)
    return chain.argmax(size)


def fly_of_vllm(chain, window, entropy, no_window, top_k):
    """As vLLM does: deferred rejections first, each position for itself, then the native test."""
    size = len(chain.tokens)
    native = [chain.strict(i) for i in range(size)]
    for i, child in enumerate(chain.children):
        context = chain.contexts[i]
        p = softmax(context.z) if context.greedy else context.p
        likely = [share for share in np.sort(p)[-top_k:] if share > 0]
        unsure = -sum(share * math.log(share) for share in likely) >= entropy
        fits = i + window < size and all(native[i + 1 : i + window + 1])
        deferred = p[child.token] > 0 and unsure and (no_window or fits)
        if not (native[i] or deferred):
            return chain.rejected(i)
    return chain.rejected(size)


@along
def asd(chain, budget=8.0, regret_per_value=0.25, max_relaxed=2, variant="asd"):
    spent, size, count, cost = chain.contexts[0].state["spent"], len(chain.tokens), 0, 0.0
    for i, token in enumerate(chain.tokens):
        if chain.matches(i):
            continue
        regret = chain.contexts[i].z.max() - chain.contexts[i].z[token]
        value = size - i if variant == "asd" else (size - i) / size
        left = budget - spent + (1e-9 if variant == "asd" else 0.0)
        if regret / value > regret_per_value or cost + regret > left or count == max_relaxed:
            return chain.argmax(i)
        count, cost = count + 1, cost + regret
    return chain.argmax(size)


@along
def bild(chain, rollback=5.0):
    for i, token in enumerate(chain.tokens):
        if -math.log(softmax(chain.contexts[i].z)[token]) > rollback:
            if chain.matches(i):
                break
            return chain.argmax(i)
    return chain.argmax(len(chain.tokens))


def block(tree: Tree) -> Expected:
    chain = Chain.of(tree)
    if chain.contexts[0].greedy:
        return walk(tree, greedy)
    nothing = np.zeros_like(chain.contexts[-1].p)
    deterministic = np.eye(len(nothing))[chain.tokens]
    drawn = [context.q for context in chain.contexts[:-1]]
    q = [*(drawn if chain.contexts[0].sampled else deterministic), nothing]
    kept, prefix = 0, [1.0]
    for i, child in enumerate(chain.children, start=1):
        step = chain.contexts[i - 1].p[child.token] / q[i - 1][child.token]
        prefix.append(min(1.0, prefix[-1] * step))
        excess = np.maximum(prefix[i] * chain.contexts[i].p - q[i], 0.0).sum()
        whole = excess + 1.0 - prefix[i]
        if child.u < (excess / whole if whole > 0 else 1.0):
            kept = i
    left = np.maximum(prefix[kept] * chain.contexts[kept].p - q[kept], 0.0)
    return list(range(kept + 1)), left / left.sum(), (0, 0)
