"""Agreement of texts by models that compare meanings, as reports show it: which models, and where results lie."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Similarity
    from methods.engine.sentences import SentenceModel


class Models:
    """The models of `similarity`, each loaded when it is first needed."""

    def __init__(self, options: Similarity, device: str) -> None:
        self.options, self.device = options, device
        self._loaded = cache(self._load)

    def given(self, measures: Sequence[str]) -> dict[str, str]:
        """Measure -> model of those that are given."""
        return self.options.models(tuple(measures))

    def score(self, measure: str, label: str, first: Sequence[str], second: Sequence[str]) -> list[float]:
        """One number for each pair of texts; `label`: whose probability "entailment" stands for. Raises ModelError."""
        from methods.engine import sentences

        model = self._loaded(measure)
        if measure == "sentence":
            return sentences.cosines(model, first, second)
        if measure == "entailment":
            return sentences.label_probabilities(model, label, first, second)
        return sentences.bert_scores(model, first, second, self.options.bertscore_layer)

    def _load(self, measure: str) -> SentenceModel:
        from methods.engine.sentences import SentenceModel

        return SentenceModel(getattr(self.options, measure), self.device, classifies=measure == "entailment")


def settings_of(cell: Cell, models: Models, measures: Sequence[str]) -> dict[str, Any]:
    """What decides the numbers of a record, beside the answers: prompts and models."""
    layer = {"bertscore_layer": models.options.bertscore_layer} if "bertscore" in measures else {}
    return {"asked": cell.n, "models": models.given(measures), **layer}
