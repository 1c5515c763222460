"""One key for the draft length, draft.length=K, on every drafter; what a sweep may vary, and its editions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.config.errors import ConfigError

if TYPE_CHECKING:
    from bench.config.cell import Cell

LENGTH, DEPTH = "draft.length", "drafter.depth"
EMBEDDED = "embedded"


def follow_length(config: Mapping[str, Any], given: Collection[str]) -> None:
    """Give a dynamic tree K levels where draft.length=K was given: drafter.depth, which counts the rounds behind the
    root's, becomes K - 1. A drafter.depth that was given stays."""
    tree, length = _tree(config), config.get("draft", {}).get("length")
    if tree is not None and LENGTH in given and DEPTH not in given and isinstance(length, int):
        tree["depth"] = length - 1


def check_lengths(config: Mapping[str, Any], given: Collection[str]) -> None:
    """Raises ConfigError where a command gives both keys and they disagree."""
    tree, length = _tree(config), config.get("draft", {}).get("length")
    if tree is not None and {LENGTH, DEPTH} <= set(given) and tree["depth"] != length - 1:
        raise ConfigError(f"{DEPTH}={tree['depth']} beside {LENGTH}={length}: a tree of K levels has {DEPTH}=K-1; give "
                          f"{LENGTH} alone")


def check_effects(points: Sequence[Collection[str]], cells: Sequence[Cell]) -> None:
    """Raises ConfigError for a swept option of the drafter that decides nothing there. `points`: the overrides of each
    cell."""
    values: dict[str, dict[str, None]] = {}
    for point in points:
        for line in point:
            values.setdefault(line.partition("=")[0], {})[line.partition("=")[2]] = None
    for key, swept in values.items():
        option = "length" if key == LENGTH else key.removeprefix("drafter.")
        if len(swept) < 2 or option == key:
            continue
        if idle := next((cell for cell in cells if option in cell.drafter.options.idle), None):
            raise ConfigError(f"{key}={','.join(swept)}: drafter={idle.drafter.name} ignores it, for its drafts have "
                              f"another shape ({idle.drafter.options.shaped_by}); sweep a key that it reads")


def edition(section: Mapping[str, Any], sweep: str, scale: str, given: Collection[str]) -> list[str]:
    """The overrides of a sweep's edition at a scale, without keys that the command gives. Raises ConfigError."""
    known = section.get("editions") or {}
    if scale == EMBEDDED:
        return []
    if scale not in known:
        others = ", ".join(f"scale={name}" for name in (EMBEDDED, *known))
        raise ConfigError(f"scale={scale}: +sweep={sweep} has no such edition; it has {others}; name models and task "
                          "yourself: pair=NAME task=NAME")
    return [line for line in known[scale] if line.partition("=")[0] not in given]


def _tree(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options of a drafter that grows a dynamic tree; None for any other."""
    drafter = config.get("drafter")
    return drafter if isinstance(drafter, dict) and drafter.get("tree") == "dynamic" and "depth" in drafter else None
