"""Rules that look at more than one context, once more for the reader: float64, one drafted token
after the other, as the sources state them. Those along a chain are given it and their options, and
return how many tokens are kept and the distribution of the token after them; the others are given
the tree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import wraps

import numpy as np
from scipy.optimize import brentq

from tests.helpers.rule_reference import (
    Child,
    Context,
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
    def of(cls, tree):
        nodes = [tree[node] for node in sorted(tree)]
        return cls(
            [context for context, _ in nodes], [child for _, found in nodes for child in found]
        )

    @property
    def tokens(self):
        return [child.token for child in self.children]

    def matches(self, i):
        return i < len(self.tokens) and self.tokens[i] == self.contexts[i].z.argmax()

    def strict(self, i):
        return strict_accepts(self.contexts[i], [], self.children[i])

    def rejected(self, i):
        """The lossless rule's own token behind i kept ones."""
        return i, lossless(self.contexts[i], self.children[i : i + 1])[1]

    def argmax(self, i):
        return i, self.contexts[i].argmax


def along(rule):
    """The rule of a tree that is a chain; of the kept tokens that the lossless test rejects, it
    counts those that are not the argmax, and those that are."""

    @wraps(rule)
    def of_tree(tree, **options):
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


def typical(tree, variant="paper", epsilon=0.09, delta=0.3, correction="greedy"):
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


def tilted(tree, lam=1.0):
    """Each context's law by recursion from the leaves; of a drawn token by a root finder."""

    def law(node):
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

    def local(context, children):
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


def drawn_law(p, q, lam):
    """The median of c p, q and c p exp(1/lam), which sums to 1."""

    def at(log_c):
        return np.median([np.exp(log_c) * p, q, np.exp(log_c + 1 / lam) * p], axis=0)

    r = at(brentq(lambda log_c: at(log_c).sum() - 1, -1 / lam - 1, 1.0, xtol=1e-14))
    return r / r.sum()
