"""Overrides as text: `key=value`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results.reports.axes import Scale


def pair_of(overrides: Sequence[str]) -> str | None:
    """The pair that is chosen by name."""
    return next((line.partition("=")[2] for line in overrides if key_of(line) == "pair"), None)


def scale_of(overrides: Sequence[str]) -> Scale:
    """The scale that is given as `scale=paper`. Raises ValueError for an unknown one."""
    scale = next((line.partition("=")[2] for line in overrides if key_of(line) == "scale"), "embedded")
    if scale == "paper":
        return "paper"
    if scale != "embedded":
        raise ValueError(f"scale={scale}: unknown; embedded or paper")
    return "embedded"


def key_of(override: str) -> str:
    return override.partition("=")[0]


def made_by(*overrides: str) -> str:
    """The command that these overrides make, as a shell takes it."""
    return shlex.join(["python", "-m", "bench", *overrides])
