"""What a benchmark draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Example:
    """A generated item of an embedded benchmark.

    id         unique within its benchmark and split.
    turns      the user's messages.
    answers    the gold answer to each turn.
    reference  plain JSON data for the scorer.
    phrases    the answers with their free wording (phrase.py); empty where the wording is fixed.
    """

    id: str
    turns: tuple[str, ...]
    answers: tuple[str, ...]
    reference: Mapping[str, Any]
    phrases: tuple[str, ...] = ()
