"""No score: a judge decides later, or nothing does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from tasks.base import Score
from tasks.scorers.base import Scorer


class Nothing(Scorer):
    """No score: nothing in the data says what is right."""

    metric: ClassVar[str] = "none"
    proportion: ClassVar[bool] = False

    name: Literal["none"]

    def _score(self, reference: Mapping[str, Any], texts: Sequence[str]) -> Score:
        return Score(None)
