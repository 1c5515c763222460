"""The growth of dynamic trees against a slow one, and trees of heads against chains fed without a cache."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods import registry
from methods.decode import Limits, Request, generate
from methods.method import build_method
from methods.sampling import Sampling
from methods.trees.dynamic import Growth, TreeShape
from tests.helpers.tiny_heads import inner_nodes, random_head, small
from tests.helpers.tiny_models import language_model, prompts


def distribution(seed: int, path: tuple[int, ...], vocab: int, certain: bool) -> list[float]:
    """Log-probabilities behind a path; `certain`: sometimes one token has all the mass, so that scores tie."""
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
            paths = [[row[p] + (t,) for t, p in zip(*beams, strict=True)] for row, *beams in
                     zip(paths, tokens.tolist(), parents.expand(tokens.shape).tolist(), strict=True)]
        top = torch.tensor([[distribution(seed, path, vocab, certain) for path in row]
                            for seed, row in zip(seeds, paths, strict=True)]).topk(shape.top_k)
        growth.add(top.indices, top.values)
    tree = growth.select(torch.zeros(len(seeds), 1, dtype=torch.int64))
    check_sources(growth, tree, shape)
    return tree


def check_sources(growth: Growth, tree, shape: TreeShape) -> None:
    """The children of a node, and of no other, were made by the expansion that is its source."""
    sources = growth.sources(tree)
    made_by = torch.where(tree.entries > 0, (tree.entries - 1) // shape.top_k, -1)
    parents = tree.parents[:, 1:]
    assert torch.equal(sources.gather(1, parents), made_by[:, 1:])


def slowly(shape: TreeShape, seed: int, vocab: int) -> dict[tuple[int, ...], float]:
    """path -> score of the chosen nodes, one node at a time in double precision."""
    pool: dict[tuple[int, ...], float] = {}
    beams = {(): 0.0}
    for _ in range(shape.depth + 1):
        arisen = {}
        for path, score in beams.items():
            logprobs = distribution(seed, path, vocab, False)
            for token in sorted(range(vocab), key=lambda t: -logprobs[t])[:shape.top_k]:
                arisen[(*path, token)] = score + logprobs[token]
        pool |= arisen
        beams = dict(sorted(arisen.items(), key=lambda item: -item[1])[:shape.top_k])
    return dict(sorted(pool.items(), key=lambda item: -item[1])[:shape.nodes - 1])


def paths_of(tree, row: int) -> list[tuple[int, ...]]:
    found = [()]
    for token, parent in zip(tree.tokens[row, 1:].tolist(), tree.parents[row, 1:].tolist(), strict=True):
        found.append((*found[parent], token))
    return found


shapes = st.builds(TreeShape, st.integers(2, 24), st.integers(0, 4), st.integers(1, 5))


@settings(max_examples=40, deadline=None)
@given(shapes, st.integers(0, 10**6))
def test_growth_is_the_slow_one(shape: TreeShape, seed: int) -> None:
    tree = grow(shape, [seed, seed + 1], 7, certain=False)
    for row in range(2):
        expected, paths = slowly(shape, seed + row, 7), paths_of(tree, row)
        assert len(paths) == shape.nodes and set(paths[1:]) == set(expected)
        assert tree.depth[row].tolist() == [len(path) for path in paths]
        for path, q in zip(paths[1:], tree.q[row, 1:].tolist(), strict=True):
            assert q == pytest.approx(math.exp(distribution(seed + row, path[:-1], 7, False)[path[-1]]), abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(shapes, st.integers(0, 10**6))
def test_every_tree_is_closed_and_in_draft_order(shape: TreeShape, seed: int) -> None:
    """Also where a child is certain and scores as much as its parent."""
    tree = grow(shape, [seed], 7, certain=True)
    parents, paths = tree.parents[0].tolist(), paths_of(tree, 0)
    assert parents[0] == -1 and all(0 <= parent < node for node, parent in enumerate(parents) if node)
    assert len(set(paths)) == len(paths) == shape.nodes
    for node in range(2, shape.nodes):
        if parents[node] == parents[node - 1]:
            assert tree.q[0, node] <= tree.q[0, node - 1]
    for parent in range(shape.nodes):  # the best children of a node are taken before its others
        children = [path[-1] for path, p in zip(paths, parents, strict=True) if p == parent]
        logprobs = distribution(seed, paths[parent], 7, True)
        best = sorted(range(7), key=lambda t: -logprobs[t])[:len(children)]
        assert children == best


@pytest.mark.parametrize("name", ["eagle2", "eagle"])
def test_a_tree_says_what_its_paths_say_as_chains(name: str, drafts) -> None:
    """Each node's distribution, in a ragged batch over several cycles, equals the head's own over the whole sequence,
    fed in one piece without cache, mask or tree: true features up to the root, the head's output from there on.
    EAGLE-3's heads: test_eagle3_config.py."""
    target = language_model("llama", layers=3)
    method = build_method(target, random_head(name, target), small(name), registry.rule("lossless")(q_mode="draft"),
                          Sampling(1.0), 4)
    generate(method, [Request(ids, f"chain/{i}") for i, ids in enumerate(prompts(3))], Limits(9, frozenset()))
    assert len(drafts) > 3 and len({len(row) for row in drafts[-1][0]}) > 1
    for rows, draft in drafts[:4]:
        for row, ids in enumerate(rows):
            if len(ids) - len(prompts(3)[row]) > 8:
                continue  # this row is finished: its draft is nobody's
            for path, logits in inner_nodes(draft, row):
                expected = as_chain(method, ids, path)
                largest = float(expected[expected.isfinite()].abs().max())
                # without a norm between the steps rounding grows with depth; a wrong token, place or mask is larger
                torch.testing.assert_close(logits, expected, rtol=0, atol=2e-3 * largest)


@torch.inference_mode()
def as_chain(method, ids: list[int], path: list[int]) -> torch.Tensor:
    """[V] logits behind committed `ids` and a drafted `path`."""
    head, target = method.model, method.target
    states = target.model(torch.tensor([ids[:-1]]), output_hidden_states=True, use_cache=False).hidden_states
    hidden = head.model.fuse(torch.cat([states[i] for i in method.drafter.features(method.model)], -1))
    tokens = ids[1:]
    for token in [*path, None]:
        out = head.model(head.embed(torch.tensor([tokens])), hidden)
        if token is None:
            logits = torch.full((target.vocab_size,), -torch.inf)
            ids_of = torch.arange(target.vocab_size) if head.to_target is None else head.to_target
            logits[ids_of] = head.logits(out[0, -1])
            return logits
        tokens, hidden = [*tokens, token], torch.cat([hidden, out[:, -1:]], 1)
