"""No score (a judge decides later, or nothing does), and ROUGE-L."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from tasks.base import Score
from tasks.mini import sum as summaries
from tasks.scorers.base import Scorer


class Nothing(Scorer):
    """No score: nothing in the data says what is right."""

    metric: ClassVar[str] = "none"
    proportion: ClassVar[bool] = False

    name: Literal["none"]

    def judge(self, reference: Mapping[str, Any], texts: Sequence[str]) -> Score:
        return Score(None)


class RougeL(Scorer):
    """F1 of ROUGE-L (rouge-score, with stemming) against the reference summary."""

    metric: ClassVar[str] = "rougeL"
    proportion: ClassVar[bool] = False

    name: Literal["rouge"]

    def judge(self, reference: Mapping[str, Any], texts: Sequence[str]) -> Score:
        return summaries.score({"summaries": [reference["target"]]}, texts)
