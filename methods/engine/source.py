"""Where a model comes from: a folder, a name on the hub, or a shape whose weights are drawn. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

RANDOM = "random:"
"""Before a folder: its config.json gives the shape, the weights are drawn anew."""


class ModelError(ValueError):
    """A checkpoint that cannot be used. The message is one line: what was given, what is allowed, how to fix it."""


def is_random(source: str) -> bool:
    return source.startswith(RANDOM)


def folder_of(source: str) -> Path:
    """The folder of a local or `random:` source; for a hub name a path that does not exist."""
    return Path(source.removeprefix(RANDOM))
