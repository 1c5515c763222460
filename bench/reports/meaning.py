"""How alike texts are in meaning: sentence-transformers and BERTScore, run as their authors
publish them. Both come with `pip install -e .[similarity]`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from methods.engine.source import ModelError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Similarity

PACKAGES = {
    "sentence": "sentence_transformers",
    "entailment": "sentence_transformers",
    "bertscore": "bert_score",
}
"""Measure -> the package that computes it."""
BATCH = 32
LONGEST = 512
"""Tokens of a text for BERTScore, at most: some tokenizers name no limit."""
IN_FLOAT32 = {"dtype": "float32"}


def lacking_package(measures: Iterable[str]) -> str:
    """Why these measures cannot be computed here; empty where they can."""
    for name in measures:
        package = PACKAGES[name]
        if find_spec(package) is None:
            return (
                f"similarity.{name}: needs the package {package.replace('_', '-')}: "
                "pip install -e .[similarity]"
            )
    return ""


class MeaningModels:
    """The models of `similarity`, each loaded when it is first needed, in float32.

    measures  those that the figure shows."""

    def __init__(self, options: Similarity, device: str, measures: tuple[str, ...]) -> None:
        self.options, self.device, self.measures = options, device, measures
        self._loaded = cache(self._load)

    def score(
        self, measure: str, label: str, first: Sequence[str], second: Sequence[str]
    ) -> list[float]:
        """One number for each pair of texts: the cosine of their embeddings, the probability of
        `label` ("entailment") for the pair, or the F1 of BERTScore. Raises ModelError."""
        model = self._loaded(measure)
        if measure == "sentence":
            return self._cosines(model, first, second)
        if measure == "entailment":
            return self._label_probabilities(model, label, first, second)
        return bert_scores(model, first, second)

    def about(self, cell: Cell) -> dict[str, Any]:
        """What decides the numbers of a record, beside the answers: prompts and models."""
        about = {"asked": cell.n, "models": self.options.models(self.measures)}
        if "bertscore" in self.measures:
            about["bertscore_layer"] = self.options.bertscore_layer
        return about

    def _load(self, measure: str) -> Any:
        """Raises ModelError, one line."""
        source = getattr(self.options, measure)
        try:
            if measure == "bertscore":
                return bert_scorer(source, self.options.bertscore_layer, self.device)
            from sentence_transformers import CrossEncoder, SentenceTransformer

            kind: Callable[..., Any] = CrossEncoder
            if measure == "sentence":
                kind = SentenceTransformer
            return kind(source, device=self.device, model_kwargs=IN_FLOAT32)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise ModelError(
                f"similarity.{measure}={source}: cannot be loaded: {str(error).splitlines()[0]}"
            ) from error

    @staticmethod
    def _cosines(model: Any, first: Sequence[str], second: Sequence[str]) -> list[float]:
        from sentence_transformers.util import pairwise_cos_sim

        embeddings = [
            model.encode(list(texts), batch_size=BATCH, show_progress_bar=False)
            for texts in (first, second)
        ]
        cosines: list[float] = pairwise_cos_sim(*embeddings).tolist()
        return cosines

    def _label_probabilities(
        self, model: Any, label: str, premises: Sequence[str], hypotheses: Sequence[str]
    ) -> list[float]:
        labels = {name.lower(): index for name, index in model.config.label2id.items()}
        if label not in labels:
            raise ModelError(
                f"similarity.entailment={self.options.entailment}: has no label {label!r}, only "
                f"{', '.join(sorted(labels))}; give another model"
            )
        probabilities = model.predict(
            list(zip(premises, hypotheses, strict=True)),
            batch_size=BATCH,
            apply_softmax=True,
            show_progress_bar=False,
        )
        of_label: list[float] = probabilities[:, labels[label]].tolist()
        return of_label


def bert_scorer(source: str, layer: int | None, device: str) -> Any:
    """BERTScore on a layer of the encoder `source`, without idf weights and rescaling. `layer`: of
    the hidden states; None: the last. Raises ModelError for a layer that the model does not have,
    and what transformers raises for a model that cannot be loaded."""
    from bert_score import BERTScorer
    from transformers import AutoConfig

    layers = AutoConfig.from_pretrained(source).num_hidden_layers
    if layer is not None and layer > layers:
        raise ModelError(
            f"similarity.bertscore_layer={layer}: {source} has no such layer; give 0 to {layers}"
        )
    scorer = BERTScorer(
        source, num_layers=layers if layer is None else layer, device=device, batch_size=BATCH
    )
    scorer._model.float()  # the package takes the dtype of the file
    tokenizer = scorer._tokenizer
    tokenizer.model_max_length = min(tokenizer.model_max_length, LONGEST)
    return scorer


def bert_scores(scorer: Any, candidates: Sequence[str], references: Sequence[str]) -> list[float]:
    """F1 of each pair. A text without words, which the package cannot read, is like another one
    only."""
    pairs = list(zip(candidates, references, strict=True))
    readable = [pair for pair in pairs if all(text.strip() for text in pair)]
    f1: list[float] = scorer.score(*zip(*readable, strict=True))[2].tolist() if readable else []
    scores = dict(zip(readable, f1, strict=True))
    return [scores.get(pair, float(not any(text.strip() for text in pair))) for pair in pairs]
