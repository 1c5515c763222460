"""The terminal that all commands print to."""

from __future__ import annotations

import sys

from rich.console import Console

WIDE = 150


def console() -> Console:
    """The standard output; where it is no terminal, wide enough for whole rows."""
    return Console(width=None if sys.stdout.isatty() else WIDE)
