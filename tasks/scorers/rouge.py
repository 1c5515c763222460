"""ROUGE-L (rouge-score, with stemming)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal

from tasks.base import Reference, Score
from tasks.scorers.base import Scorer

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer


@cache
def _scorer() -> RougeScorer:
    from rouge_score.rouge_scorer import RougeScorer  # imports nltk, which takes seconds

    return RougeScorer(["rougeL"], use_stemmer=True)


def rouge_l(references: Sequence[str], texts: Sequence[str]) -> Score:
    """F1 of the longest common subsequence of words between the first text and the best-matching
    reference."""
    text = texts[0].strip() if texts else ""
    return Score(_scorer().score_multi(references, text)["rougeL"].fmeasure, text or None)


class RougeL(Scorer):
    """F1 of ROUGE-L against the reference summary."""

    metric: ClassVar[str] = "rougeL"
    proportion: ClassVar[bool] = False

    name: Literal["rouge"]

    def _score(self, reference: Reference, texts: Sequence[str]) -> Score:
        return rouge_l([reference["target"]], texts)
