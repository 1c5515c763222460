"""Traversal verification, once more for the reader: float64, one tree, recursion."""

from __future__ import annotations

import numpy as np

from tests.helpers.rule_reference import Expected, Tree, greedy, walk


def traversal(tree: Tree) -> Expected:
    """Nodes are tested depth first, children before their parent, and the root last; siblings are independent draws."""
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


def _visit(tree: Tree, node: int, alpha: float, emitted: dict[int, np.ndarray]) -> list[tuple[int, float]]:
    """Nodes in the order of their tests, each with its probability of acceptance; what is emitted behind each."""
    context, children = tree[node]
    m, order = context.p, []
    for child in children:
        order += _visit(tree, child.node, min(1.0, alpha * m[child.token] / context.q[child.token]), emitted)
        left = np.maximum(alpha * m - context.q, 0.0)
        total, whole = left.sum(), left.sum() + 1.0 - alpha
        alpha, m = total / whole if whole > 0 else 1.0, left / total if total > 0 else m
    emitted[node] = m
    return [*order, (node, alpha)]
