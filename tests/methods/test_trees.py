"""Draft trees: static ones and their files, dynamic growth against a slow one, drawn siblings and
their law."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.sampling import Sampling
from methods.trees import static
from methods.trees.dynamic import Growth, TreeShape
from methods.trees.shaped import ShapedTree
from methods.trees.static import StaticTree, TreeError, regular


@st.composite
def path_lists(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Prefix-closed paths in random order; ranks may have gaps."""
    paths: list[tuple[int, ...]] = [()]
    for _ in range(draw(st.integers(1, 30))):
        path = (*draw(st.sampled_from(paths)), draw(st.integers(0, 11)))
        if path not in paths:
            paths.append(path)
    return draw(st.permutations(paths[1:]))


@given(path_lists())
def test_a_tree_is_what_the_loop_wants(paths):
    tree = StaticTree.of_paths("t", "s", paths)
    assert tree.paths[0] == () and set(tree.paths[1:]) == set(paths)
    assert list(tree.depth) == sorted(map(len, tree.paths))
    assert tree.parents[0] == -1 and tree.max_depth == len(tree.widths) == max(tree.depth)
    for i in range(1, tree.nodes):
        parent, rank = tree.parents[i], tree.ranks[i]
        assert parent < i and tree.paths[i] == (*tree.paths[parent], rank)
        assert rank < tree.widths[tree.depth[i] - 1]
        siblings = [j for j in range(i) if tree.parents[j] == parent]
        assert all(tree.ranks[j] < rank for j in siblings), "best first"


def test_an_unknown_name_lists_the_trees(tmp_path):
    with pytest.raises(
        TreeError, match=r"medusa_64: no such tree; there are .*medusa_63.* or give the path"
    ):
        static.load("medusa_64")
    own = tmp_path / "own.yaml"
    own.write_text("source: mine\npaths: |\n  0 1\n  1.0\n")
    assert static.load(str(own)).paths == ((), (0,), (1,), (1, 0))
    with pytest.raises(TreeError, match=r"^own: node -1 has a negative rank"):
        StaticTree.of_paths("own", "mine", [[0], [-1]])


@pytest.mark.parametrize("name", static.names())
def test_shipped_trees(name):
    tree = static.load(name)
    assert tree.source
    children = {path: [p for p in tree.paths if p[:-1] == path and p] for path in tree.paths}
    for path, found in children.items():  # no rank is skipped
        assert [p[-1] for p in found] == list(range(len(found))), path


def distribution(seed: int, path: tuple[int, ...], vocab: int, certain: bool) -> list[float]:
    """Log-probabilities behind a path; `certain`: sometimes one token has all the mass, so that
    scores tie."""
    rng = random.Random(f"{seed}/{path}")
    if certain and rng.random() < 0.5:
        best = rng.randrange(vocab)
        return [0.0 if token == best else -60.0 - token for token in range(vocab)]
    weights = [rng.random() ** 3 + 1e-3 for _ in range(vocab)]
    return [math.log(w / sum(weights)) for w in weights]


def grow(shape: TreeShape, seeds: list[int], vocab: int, certain: bool):
    """A tree a row, the paths of beams kept on the side."""
    growth, paths = Growth(shape, torch.device("cpu")), [[()] for _ in seeds]
    for level in range(shape.depth + 1):
        if level:
            tokens, parents = growth.beams()
            paths = [
                [row[p] + (t,) for t, p in zip(*beams, strict=True)]
                for row, *beams in zip(
                    paths, tokens.tolist(), parents.expand(tokens.shape).tolist(), strict=True
                )
            ]
        top = torch.tensor(
            [
                [distribution(seed, path, vocab, certain) for path in row]
                for seed, row in zip(seeds, paths, strict=True)
            ]
        ).topk(shape.top_k)
        growth.add(top.indices, top.values)
    tree = growth.select(torch.zeros(len(seeds), 1, dtype=torch.int64))
    # the children of a node, and of no other, were made by the expansion that is its source
    made_by = torch.where(tree.entries > 0, (tree.entries - 1) // shape.top_k, -1)
    made_from = growth.sources(tree).gather(1, tree.parents[:, 1:])
    assert torch.equal(made_from, made_by[:, 1:])
    return tree


def slowly(shape: TreeShape, seed: int, vocab: int) -> dict[tuple[int, ...], float]:
    """path -> score of the chosen nodes, one node at a time in double precision."""
    pool: dict[tuple[int, ...], float] = {}
    beams = {(): 0.0}
    for _ in range(shape.depth + 1):
        arisen = {}
        for path, score in beams.items():
            logprobs = distribution(seed, path, vocab, False)
            for token in sorted(range(vocab), key=lambda t: -logprobs[t])[: shape.top_k]:
                arisen[(*path, token)] = score + logprobs[token]
        pool |= arisen
        beams = dict(sorted(arisen.items(), key=lambda item: -item[1])[: shape.top_k])
    return dict(sorted(pool.items(), key=lambda item: -item[1])[: shape.nodes - 1])


def paths_of(tree, row: int) -> list[tuple[int, ...]]:
    paths, columns = [()], (tree.tokens[row, 1:].tolist(), tree.parents[row, 1:].tolist())
    for token, parent in zip(*columns, strict=True):
        paths.append((*paths[parent], token))
    return paths


shapes = st.builds(TreeShape, st.integers(2, 24), st.integers(0, 4), st.integers(1, 5))


@settings(max_examples=80, deadline=None)
@given(shapes, st.integers(0, 10**6), st.booleans())
def test_growth_is_closed_in_draft_order_and_the_slow_one(
    shape: TreeShape, seed: int, certain: bool
) -> None:
    """Closed and in order also where a child is certain and scores as much as its parent; there the
    slow one may choose another of equal nodes."""
    tree = grow(shape, [seed, seed + 1], 7, certain)
    for row in range(2):
        parents, paths = tree.parents[row].tolist(), paths_of(tree, row)
        assert parents[0] == -1 and all(0 <= p < node for node, p in enumerate(parents) if node)
        assert len(set(paths)) == len(paths) == shape.nodes
        assert tree.depth[row].tolist() == [len(path) for path in paths]
        assert certain or set(paths[1:]) == set(slowly(shape, seed + row, 7))
        for parent in range(shape.nodes):  # the best children of a node are taken, best first
            children = [node for node, p in enumerate(parents) if p == parent]
            logprobs = distribution(seed + row, paths[parent], 7, certain)
            best = sorted(range(7), key=lambda t: -logprobs[t])[: len(children)]
            assert [paths[node][-1] for node in children] == best
            q = [math.exp(logprobs[token]) for token in best]
            assert tree.q[row, children].tolist() == pytest.approx(q, abs=1e-5)


@pytest.mark.parametrize("replacement", [True, False])
def test_siblings_are_drawn_one_by_one(replacement: bool) -> None:
    """Each with a number of its own, distinct ones from what those before them leave."""
    u = torch.rand(200, 3, generator=torch.Generator().manual_seed(0))
    logits = torch.tensor([0.3, 1.0, -0.5, 0.2])
    tree = ShapedTree(regular((3,), 1), Sampling(1.0), True, replacement)
    drawn = tree.siblings(1, logits.expand(200, 1, 4), u)
    q = logits.double().softmax(-1)
    for numbers, tokens in zip(u.tolist(), drawn.tokens.tolist(), strict=True):
        left = q.clone()
        for number, token in zip(numbers, tokens, strict=True):
            assert token == int((left.cumsum(0) / left.sum() <= number).sum())
            left[token] *= replacement


def test_siblings_end_with_the_distribution() -> None:
    u, logits = torch.tensor([[0.1, 0.999999, 0.5]]), torch.tensor([[[0.0, 3.0, 2.0, -1.0]]])
    shape, narrow = regular((3,), 1), Sampling(1.0, top_k=2)
    drawn = ShapedTree(shape, narrow, sampled=True, replacement=False).siblings(1, logits, u)
    assert drawn.real.tolist() == [[True, True, False]] and drawn.tokens[0, :2].tolist() == [1, 2]
    likeliest = ShapedTree(shape, Sampling(1.0)).siblings(1, logits, u)
    assert likeliest.tokens.tolist() == [[1, 2, 0]]
