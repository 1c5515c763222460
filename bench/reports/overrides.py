"""Overrides as text: `key=value`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from results.reports.axes import SCALES, Scale


def pair_of(overrides: Sequence[str]) -> str | None:
    """The pair that is chosen by name."""
    return next((line.partition("=")[2] for line in overrides if key_of(line) == "pair"), None)


def scale_of(overrides: Sequence[str]) -> Scale:
    """The edition that is given as `scale=NAME`, else the embedded one. Raises ValueError for an unknown one."""
    given = next((line.partition("=")[2] for line in overrides if key_of(line) == "scale"), "embedded")
    for scale in SCALES:
        if given == scale:
            return scale
    raise ValueError(f"scale={given}: unknown; one of {', '.join(SCALES)}")


def key_of(override: str) -> str:
    return override.partition("=")[0]


def made_by(*overrides: str) -> str:
    """The command that these overrides make, as a shell takes it."""
    return shlex.join(["python", "-m", "bench", *overrides])
