"""Overrides as text: `key=value`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def pair_of(overrides: Sequence[str]) -> str | None:
    """The pair that is chosen by name."""
    return next((line.partition("=")[2] for line in overrides if key_of(line) == "pair"), None)


def key_of(override: str) -> str:
    return override.partition("=")[0]


def made_by(*overrides: str) -> str:
    """The command that these overrides make, as a shell takes it."""
    return shlex.join(["python", "-m", "bench", *overrides])
