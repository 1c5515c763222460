"""Measuring rank accuracies: what the probing tree can say, counted right, on cycles made by hand and on real ones."""

from __future__ import annotations

from bench.grow_tree import probe, rank_accuracy
from methods.trees.static import StaticTree
from results.store.traces import Cycle, Node


def cycle(tree: StaticTree, kept: set[int]) -> Cycle:
    nodes = tuple(Node(i, "x", tree.parents[i], None, None if i == 0 else 0.5, None if i == 0 else 0,
                       "root" if i == 0 else "strict" if i in kept else "rejected") for i in range(tree.nodes))
    return Cycle({}, 1, "", nodes, Node(0, "x", 0, None, 1.0, 0, "drawn"))


def test_the_probe_follows_the_best_guess():
    tree = probe(3, 2)
    assert tree.paths == ((), (0,), (1,), (0, 0), (0, 1), (0, 0, 0), (0, 0, 1))


def test_accuracies_are_shares_of_the_cycles_that_could_ask():
    tree = probe(2, 2)  # nodes: 1 = 0, 2 = 1, 3 = 0.0, 4 = 0.1
    cycles = [cycle(tree, {1, 3}), cycle(tree, {1, 4}), cycle(tree, {1}), cycle(tree, {2}), cycle(tree, set())]
    accuracy, asked = rank_accuracy(cycles, tree)
    assert asked == [5, 3] and accuracy == [[3 / 5, 1 / 5], [1 / 3, 1 / 3]]
