"""Read a user's YAML: plain values alone, each key once, within bounds that end in one line and not
in a traceback."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 1 << 20
"""Of a file: two seconds' reading, and thirty times the largest YAML of conf/."""
DEEPEST = 64
"""Levels of a text: those of conf/ are eight at most, and a thousand need all of Python's stack."""
_TAG = "tag:yaml.org,2002:"
PLAIN = ("null", "bool", "int", "float", "str", "seq", "map")
_EXPONENT = re.compile(r"[-+]?\d+(_\d+)*(\.[\d_]*)?[eE][-+]?\d+$", re.ASCII)
RESOLVERS = {
    first: [
        *((tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"),
        *([(f"{_TAG}float", _EXPONENT)] if first in list("-+0123456789") else []),
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
"""Which plain words are values of which tag, as in OmegaConf: dates stay texts, and 1e-3 is a
number."""


class _PlainLoader(yaml.SafeLoader):
    """Plain values, bounded in depth, without aliases: a few of these expand to billions of
    values."""

    yaml_implicit_resolvers = RESOLVERS
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("an alias (*name); write the value itself")
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep; simplify it")
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        tag, place = node.tag.replace(_TAG, "!!"), f"line {node.start_mark.line + 1}"
        if node.tag.removeprefix(_TAG) not in PLAIN:
            raise ValueError(f"{place}: {tag}: only plain values are read; remove the tag")
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            if not isinstance(node, yaml.ScalarNode):
                raise
            raise ValueError(
                f"{place}: {tag} {node.value[:40]!r}: not a value of this tag"
            ) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if (word := (key.tag, str(key.value))) in seen:
                raise ValueError(
                    f"line {key.start_mark.line + 1}: {key.value[:60]} is given twice; give it once"
                )
            seen.add(word)
        return super().construct_mapping(node, deep)


def mapping(file: Path) -> dict[str, Any]:
    """The `key: value` lines of a YAML file. Raises ValueError, one line that names the file, for
    one that is not there or holds anything else."""
    try:
        if file.exists() and not file.is_file():
            raise ValueError("no regular file; a pipe or device could go on without end")
        if (size := file.stat().st_size) > MOST_BYTES:
            raise ValueError(
                f"{size / 1e6:.0f} MB; at most {MOST_BYTES / 1e6:.0f} MB are read: simplify it"
            )
        content = parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    if content is not None and not isinstance(content, dict):
        kind = "list" if isinstance(content, list) else "single value"
        raise ValueError(f"{file}: must hold `key: value` lines, not a {kind}")
    return content or {}


def parse(text: str) -> Any:
    """The value of a YAML text. Raises ValueError, one line, where it is not YAML, holds anything
    but plain values, a key twice, or too much."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"{len(text)} characters; at most {MOST_BYTES} are read: simplify it")
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
