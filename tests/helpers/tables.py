"""Tables of cases as text, one a line."""

from __future__ import annotations


def rows(text: str) -> list[tuple[str, ...]]:
    """The cells of each line, which ` | ` parts."""
    return [tuple(map(str.strip, line.split(" | "))) for line in text.strip().splitlines()]
