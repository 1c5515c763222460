"""Traversal verification, once more for the reader: float64, one tree, recursion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class SampledNode:
    """A node of a tree whose siblings were drawn from q.

    token     its token; the root's has no meaning.
    number    its index.
    p, q      distributions of the next token; q of a leaf is never read.
    children  in draft order.
    """

    token: int
    number: int
    p: np.ndarray
    q: np.ndarray | None
    children: list[SampledNode]


def build(tokens: list[int], parents: list[int], p: list[np.ndarray], q: list[np.ndarray | None]) -> SampledNode:
    nodes = [SampledNode(token, i, p[i], q[i], []) for i, token in enumerate(tokens)]
    for node, parent in zip(nodes[1:], parents[1:], strict=True):
        nodes[parent].children.append(node)
    return nodes[0]


@dataclass
class Tests:
    """Acceptance probabilities in the order in which nodes are tested, and each one's M at that time."""

    order: list[tuple[int, float]]
    emit: dict[int, np.ndarray]


def traversal(root: SampledNode, replacement: bool) -> Tests:
    """Test probabilities of all nodes as leaves, depth first; the root comes last, with probability 1."""
    tests = Tests([], {})
    _visit(root, 1.0, replacement, tests)
    return tests


def _visit(node: SampledNode, alpha: float, replacement: bool, tests: Tests) -> None:
    m, s = node.p, node.q
    for child in node.children:
        _visit(child, min(1.0, alpha * m[child.token] / s[child.token]), replacement, tests)
        left = np.maximum(alpha * m - s, 0.0)
        total, whole = left.sum(), left.sum() + 1.0 - alpha
        alpha = total / whole if whole > 0 else 1.0
        m = left / total if total > 0 else m
        if not replacement:
            s = s.copy()
            s[child.token] = 0.0
            s = s / s.sum() if s.sum() > 0 else s
    tests.order.append((node.number, alpha))
    tests.emit[node.number] = m
