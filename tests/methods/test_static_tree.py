"""Static trees: what a loaded one satisfies, what a file must not say, and that greedy growth is the optimum."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.trees import static
from methods.trees.draft import Draft
from methods.trees.static import StaticTree, TreeError


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
    assert tree.nodes == len(paths) + 1 and set(tree.paths[1:]) == set(paths)
    assert tree.parents[0] == -1 and all(parent < i for i, parent in enumerate(tree.parents))
    for i in range(1, tree.nodes):
        assert tree.paths[i] == (*tree.paths[tree.parents[i]], tree.ranks[i])
        assert tree.depth[i] == tree.depth[tree.parents[i]] + 1 >= tree.depth[i - 1]
    for i, j in combinations(range(1, tree.nodes), 2):  # siblings stand best first
        assert tree.parents[i] != tree.parents[j] or tree.ranks[i] < tree.ranks[j]
    assert tree.max_depth == max(map(len, paths)) == len(tree.widths)
    assert all(tree.ranks[i] < tree.widths[tree.depth[i] - 1] for i in range(1, tree.nodes))
    draft = Draft.of_parents(torch.zeros(1, tree.nodes, dtype=torch.long), torch.tensor([tree.parents]),
                             max_depth=tree.max_depth)
    assert draft.depth[0].tolist() == list(tree.depth)


@given(path_lists(), st.data())
def test_a_missing_parent_and_a_second_copy_are_refused(paths, data):
    path = data.draw(st.sampled_from(paths))
    with pytest.raises(TreeError, match="given twice"):
        StaticTree.of_paths("t", "s", [*paths, path])
    if any(len(other) > len(path) and other[:len(path)] == path for other in paths):
        with pytest.raises(TreeError, match="has no parent; add node"):
            StaticTree.of_paths("t", "s", [other for other in paths if other != path])


@pytest.mark.parametrize("text,said", [
    ("source: s\npaths: '0 0.0 0.0'", "node 0.0 is given twice; give every draft node once"),
    ("source: s\npaths: '0 1.0'", "node 1.0 has no parent; add node 1"),
    ("source: s\npaths: '0 0.-1'", "'0.-1' is not a path of ranks"),
    ("source: s\npaths: '0 0..1'", "'0..1' is not a path of ranks"),
    ("source: s\npaths: ''", "no nodes; give at least one path"),
    ("source: s\npaths: [[0], [1]]", "exactly the keys source (text) and paths (text"),
    ("paths: '0'", "exactly the keys source"),
    ("source: [", "not YAML: "),
])
def test_a_malformed_file_is_one_line(text, said):
    with pytest.raises(TreeError) as error:
        static.parse("mine.yaml", text)
    assert said in str(error.value) and str(error.value).startswith("mine.yaml: ") and "\n" not in str(error.value)


def test_an_unknown_name_lists_the_trees(tmp_path):
    with pytest.raises(TreeError, match=r"medusa_64: no such tree; there are .*medusa_63.* or give the path"):
        static.load("medusa_64")
    own = tmp_path / "own.yaml"
    own.write_text("source: mine\npaths: |\n  0 1\n  1.0\n")
    assert static.load(str(own)).paths == ((), (0,), (1,), (1, 0))


@pytest.mark.parametrize("name", static.names())
def test_shipped_trees(name):
    tree = static.load(name)
    assert tree.source
    children = {path: [p for p in tree.paths if p[:-1] == path and p] for path in tree.paths}
    for path, found in children.items():  # no rank is skipped
        assert [p[-1] for p in found] == list(range(len(found))), path
