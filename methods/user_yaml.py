"""Read a user's YAML: plain values alone, each key once, within bounds that end in one line and not in a traceback."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 1 << 20
"""Of a file: two seconds' reading, and thirty times the largest YAML of conf/."""
MOST_VALUES = 100_000
"""Values of a text once its aliases are expanded."""
DEEPEST = 64
"""Levels of a text: those of conf/ are eight at most, and a thousand need all of Python's stack."""
_TAG = "tag:yaml.org,2002:"
SCALARS = ("null", "bool", "int", "float", "str")
_EXPONENT = re.compile(r"[-+]?\d+(_\d+)*(\.[\d_]*)?[eE][-+]?\d+$", re.ASCII)
RESOLVERS = {first: [*((tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"),
                     *([(f"{_TAG}float", _EXPONENT)] if first in list("-+0123456789") else [])]
             for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()}
"""Which plain words are values of which tag, as in OmegaConf: dates stay texts, and 1e-3 is a number."""


class _Loader(yaml.SafeLoader):
    """Bounded in depth."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep; simplify it")
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


_Loader.yaml_implicit_resolvers = RESOLVERS


def read(file: Path) -> Any:
    """The value of a YAML file. Raises ValueError, one line, as `parse`, and OSError."""
    if (size := file.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{size / 1e6:.0f} MB; at most {MOST_BYTES / 1e6:.0f} MB are read: simplify it")
    return parse(file.read_text(encoding="utf-8"))


def mapping(file: Path) -> dict[str, Any]:
    """The `key: value` lines of a YAML file. Raises ValueError, one line that names the file, for one that is not there
    or holds anything else."""
    try:
        found = read(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    if found is not None and not isinstance(found, dict):
        kind = "list" if isinstance(found, list) else "single value"
        raise ValueError(f"{file}: must hold `key: value` lines, not a {kind}")
    return found or {}


def parse(text: str) -> Any:
    """The value of a YAML text. Raises ValueError, one line, where it is not YAML, holds anything but plain values, a
    key twice, or too much."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"{len(text)} characters; at most {MOST_BYTES} are read: simplify it")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None and (values := _values(loader, node, {})) > MOST_VALUES:
            raise ValueError(f"its aliases expand to {values} values; at most {MOST_VALUES} are read; simplify it")
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _values(loader: _Loader, node: yaml.Node, known: dict[int, int | None]) -> int:
    """Values below a node, aliases expanded. `known`: those of nodes seen before; None while one is being counted.
    Raises ValueError."""
    if id(node) in known:
        if (found := known[id(node)]) is None:
            raise ValueError("a recursive alias; remove it")
        return found
    known[id(node)] = None
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        _check_keys(loader, node)
        parts = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    else:
        _check_scalar(loader, node)
    if node.tag.removeprefix(_TAG) not in (*SCALARS, "seq", "map", "merge", "value"):
        raise ValueError(f"line {node.start_mark.line + 1}: {_shown(node)}: only plain values are read; remove the tag")
    known[id(node)] = total = 1 + sum(_values(loader, part, known) for part in parts)
    return total


def _check_keys(loader: _Loader, node: yaml.MappingNode) -> None:
    """Raises ValueError for a key that is no single value, or that is given twice."""
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        place = f"line {key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode):
            raise ValueError(f"{place}: a key must be a single value, not a list or mapping")
        if (key.tag, key.value) in seen and key.tag != f"{_TAG}merge":
            raise ValueError(f"{place}: {key.value[:60]} is given twice; give it once")
        seen.add((key.tag, key.value))


def _check_scalar(loader: _Loader, node: yaml.Node) -> None:
    """Raises ValueError for a value that is none of its tag's, on which PyYAML's constructors fail in many ways."""
    if node.tag.removeprefix(_TAG) not in SCALARS:
        return
    try:
        loader.construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"line {node.start_mark.line + 1}: {_shown(node)}: not a value of this tag") from error


def _shown(node: yaml.Node) -> str:
    tag = node.tag.replace(_TAG, "!!")
    return f"{tag} {node.value[:40]!r}" if isinstance(node, yaml.ScalarNode) else tag
