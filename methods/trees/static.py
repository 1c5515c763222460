"""Static draft trees: shapes that do not depend on the draft, kept as data in methods/trees/shapes.

A node is named by its path of ranks: "0.2" is the third-best continuation of the best first token.
A file is YAML:

    source: where the shape comes from
    paths: |            # every draft node, one line per depth; the root has no path
      0 1 2
      0.0 0.1 1.0

Use a custom tree by giving the path of its file (drafter.tree=my_tree.yaml). Sparse trees and how
to grow them from measured accuracies: Medusa (Cai et al. 2024), section 2.3.3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from methods import user_yaml

FOLDER = Path(__file__).parent / "shapes"
RankPath = tuple[int, ...]


class TreeError(ValueError):
    """A tree file that cannot be used. The message is one line: which file, what is wrong, what is
    allowed."""


@dataclass(frozen=True)
class StaticTree:
    """The shape of a draft tree with N nodes, node 0 the root, ordered by depth and then by path.

    A parent's index is smaller than its children's, and siblings are ordered best first, as `Draft`
    requires.

    name    shipped name or file, for messages.
    source  where the shape comes from.
    paths   N paths of ranks; the root's is ().
    """

    name: str
    source: str
    paths: tuple[RankPath, ...]

    @classmethod
    def of_paths(cls, name: str, source: str, paths: Sequence[Sequence[int]]) -> StaticTree:
        """Build the tree from the paths of all draft nodes, in any order, without the root. Raises
        TreeError."""
        ordered = sorted((tuple(path) for path in paths), key=lambda path: (len(path), path))
        if not ordered:
            raise TreeError(f"{name}: no nodes; give at least one path of ranks, such as 0")
        seen: set[RankPath] = {()}
        for path in ordered:
            if path in seen:
                raise TreeError(
                    f"{name}: node {_word(path) or 'root'} is given twice; give every draft node "
                    "once"
                )
            if min(path) < 0:
                raise TreeError(
                    f"{name}: node {_word(path)} has a negative rank; ranks count from 0, the best"
                )
            if path[:-1] not in seen:
                raise TreeError(
                    f"{name}: node {_word(path)} has no parent; add node {_word(path[:-1])}"
                )
            seen.add(path)
        return cls(name, source, ((), *ordered))

    @property
    def nodes(self) -> int:
        """N, root included."""
        return len(self.paths)

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """Index of each node's parent, -1 for the root."""
        place = {path: i for i, path in enumerate(self.paths)}
        return (-1, *(place[path[:-1]] for path in self.paths[1:]))

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Rank of each node's token in the drafter's distribution at its parent, 0 the best; the
        root's is 0."""
        return (0, *(path[-1] for path in self.paths[1:]))

    @cached_property
    def depth(self) -> tuple[int, ...]:
        """Depth of each node, 0 for the root; non-decreasing."""
        return tuple(map(len, self.paths))

    @cached_property
    def inner(self) -> tuple[int, ...]:
        """Nodes with children at each depth, the root first: what a head reads, level by level."""
        return tuple(
            sum(self.depth[node] == d for node in set(self.parents) - {-1})
            for d in range(self.max_depth)
        )

    @property
    def max_depth(self) -> int:
        """Draft tokens on the longest path."""
        return self.depth[-1]

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """For each depth 1, 2, …: how many top tokens of a distribution are needed, i.e. the
        largest rank + 1."""
        return tuple(
            max(path[-1] for path in self.paths if len(path) == d) + 1
            for d in range(1, self.max_depth + 1)
        )


@cache
def regular(branching: tuple[int, ...], depth: int) -> StaticTree:
    """The tree of `depth` levels in which a node has as many children as `branching` says for its
    depth, from the root on; 1 behind the last of them."""
    factors = (*branching, *[1] * depth)[:depth]
    paths = [
        path for level in range(1, depth + 1) for path in product(*map(range, factors[:level]))
    ]
    return StaticTree.of_paths(f"branching {list(branching)}", "regular", paths)


def names() -> list[str]:
    """Names of the shipped trees."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


@cache
def load(name: str | Path) -> StaticTree:
    """A shipped tree by its name, or the one in a file of yours (`*.yaml`). Raises TreeError."""
    file = Path(name).expanduser() if str(name).endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not file.is_file():
        raise TreeError(
            f"{name}: no such tree; there are {', '.join(names())}, or give the path of a .yaml "
            "file"
        )
    return parse(str(name), file.read_text(encoding="utf-8"))


def _name_or_file(tree: object) -> object:
    """A `.yaml` file becomes a Path, so that a cell's identity depends on its content and not on
    its location."""
    return Path(tree) if isinstance(tree, str) and tree.endswith(".yaml") else tree


def _checked(tree: Path | str) -> Path | str:
    """The same value. Raises TreeError if it cannot be loaded."""
    load(tree)
    return tree


TreeOption = Annotated[Path | str, BeforeValidator(_name_or_file), AfterValidator(_checked)]
"""Name of a shipped tree, or path of a YAML file."""


def parse(name: str, text: str) -> StaticTree:
    """Parse the text of a tree file. Raises TreeError."""
    try:
        content = user_yaml.parse(text)
    except ValueError as error:
        raise TreeError(f"{name}: not YAML: {' '.join(str(error).split())}") from error
    if (
        not isinstance(content, dict)
        or set(content) != {"source", "paths"}
        or not all(isinstance(value, str) for value in content.values())
    ):
        raise TreeError(
            f"{name}: give exactly the keys source (text) and paths (text, one line per depth: "
            "0 1 0.0)"
        )
    paths = []
    for word in content["paths"].split():
        ranks = word.split(".")
        if not all(rank.isascii() and rank.isdigit() for rank in ranks):
            raise TreeError(
                f"{name}: {word!r} is not a path of ranks; write ranks separated by dots, such "
                "as 0.2.1"
            )
        paths.append(tuple(map(int, ranks)))
    return StaticTree.of_paths(name, content["source"], paths)


def _word(path: RankPath) -> str:
    return ".".join(map(str, path))
