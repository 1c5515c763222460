"""Check a user's own folder of YAMLs before Hydra opens it: no file in it may run code, hang, or end in a traceback."""

from __future__ import annotations

from pathlib import Path

import yaml

from bench.config.errors import ConfigError
from results.store.reasons import one_line

MOST_VALUES = 100_000
"""Values of one file once its aliases are expanded: a thousand times the largest YAML of conf/."""
OWN_TAGS, MERGE = "tag:yaml.org,2002:python/", "tag:yaml.org,2002:merge"


def check_folder(folder: Path) -> None:
    """Raises ConfigError as `check_file` for the first file that cannot be read."""
    for file in sorted(folder.rglob("*.yaml")):
        check_file(file)


def check_file(file: Path) -> None:
    """Raises ConfigError, naming the file, for one that is no YAML mapping, gives a key twice, names Python objects, or
    expands without end."""
    try:
        node = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        values = 0 if node is None else _values(node, {})
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{file}: not YAML: {one_line(error)}") from error
    except RecursionError:
        raise ConfigError(f"{file}: nested too deeply; simplify the file") from None
    if node is not None and not isinstance(node, yaml.MappingNode):
        kind = "list" if isinstance(node, yaml.SequenceNode) else "single value"
        raise ConfigError(f"{file}: must hold `key: value` lines, not a {kind}")
    if values > MOST_VALUES:
        raise ConfigError(f"{file}: its aliases expand to {values} values; at most {MOST_VALUES} are read; "
                          "simplify the file")


def _values(node: yaml.Node, known: dict[int, int | None]) -> int:
    """Values below a node, aliases expanded. `known`: those of nodes seen before; None while one is being counted.
    Raises ValueError."""
    if node.tag.startswith(OWN_TAGS):
        raise ValueError(f"{node.tag.removeprefix(OWN_TAGS)}: Python objects are not read; give plain values")
    if id(node) in known:
        if (found := known[id(node)]) is None:
            raise ValueError("a recursive alias; remove it")
        return found
    known[id(node)] = None
    if isinstance(node, yaml.MappingNode):
        keys: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != MERGE):
            if (key.tag, key.value) in keys:
                raise ValueError(f"line {key.start_mark.line + 1}: {key.value} is given twice; give it once")
            keys.add((key.tag, key.value))
    parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else (
        node.value if isinstance(node, yaml.SequenceNode) else [])
    known[id(node)] = total = 1 + sum(_values(part, known) for part in parts)
    return total
