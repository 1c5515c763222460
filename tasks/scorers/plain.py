"""No score; an LLM judge may grade the answers later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from tasks.base import Score
from tasks.scorers.base import Scorer


class Nothing(Scorer):
    """No score: the data has no reference answers."""

    metric: ClassVar[str] = "none"
    proportion: ClassVar[bool] = False

    name: Literal["none"]

    def _score(self, reference: Mapping[str, Any], texts: Sequence[str]) -> Score:
        return Score(None)
