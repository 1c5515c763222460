"""Models that compare the meaning of texts: sentence encoders, classifiers of sentence pairs,
BERTScore."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from methods.engine.source import ModelError

BATCH = 32
LONGEST = 512
"""Tokens of a text, or of a pair, where the model does not say how many it takes; what is beyond is
cut off."""


class SentenceModel:
    """A model over whole texts and its tokenizer, in float32 and eval mode."""

    def __init__(self, source: str, device: str, classifies: bool = False) -> None:
        """`source`: a folder or a hub name; `classifies`: pairs of texts, with labels. Raises
        ModelError, one line."""
        kind: Any = AutoModelForSequenceClassification if classifies else AutoModel
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(source)
            self.model: Any = kind.from_pretrained(source, dtype=torch.float32).to(device).eval()
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise ModelError(f"{source}: cannot be loaded: {str(error).splitlines()[0]}") from error
        self.source, self.device = source, device
        positions = getattr(self.model.config, "max_position_embeddings", None) or LONGEST
        self.longest = min(self.tokenizer.model_max_length, positions, LONGEST)

    @torch.inference_mode()
    def batches(self, *texts: Sequence[str], **options: Any) -> Iterator[tuple[Any, Any]]:
        """(inputs, output) of each batch; one list of texts, or two for pairs. Inputs hold
        special_tokens_mask."""
        for start in range(0, len(texts[0]), BATCH):
            inputs = self.tokenizer(
                *[list(part[start : start + BATCH]) for part in texts],
                padding=True,
                truncation=True,
                max_length=self.longest,
                return_tensors="pt",
                return_special_tokens_mask=True,
            ).to(self.device)
            special = inputs.pop("special_tokens_mask")
            yield {**inputs, "special_tokens_mask": special}, self.model(**inputs, **options)


def cosines(model: SentenceModel, first: Sequence[str], second: Sequence[str]) -> list[float]:
    """Cosine similarity of each pair of texts, -1 to 1: of the means over tokens of the last hidden
    states (Reimers and Gurevych 2019, mean pooling)."""
    one, other = (
        torch.cat([_mean(inputs, output) for inputs, output in model.batches(texts)])
        for texts in (first, second)
    )
    return torch.nn.functional.cosine_similarity(one, other).tolist()


def _mean(inputs: Any, output: Any) -> Tensor:
    """[B, H]: mean over the tokens of each text, special ones included."""
    there = inputs["attention_mask"][..., None].float()
    return torch.as_tensor((output.last_hidden_state * there).sum(1) / there.sum(1))


def label_probabilities(
    model: SentenceModel, label: str, premises: Sequence[str], hypotheses: Sequence[str]
) -> list[float]:
    """Probability of a label, such as "entailment", for each pair of texts. Raises ModelError for a
    model without it."""
    labels = {name.lower(): index for name, index in model.model.config.label2id.items()}
    if label not in labels:
        raise ModelError(
            f"similarity.entailment={model.source}: has no label {label!r}, only "
            f"{', '.join(sorted(labels))}; give another model"
        )
    rows = [
        output.logits.softmax(-1)[:, labels[label]]
        for _, output in model.batches(premises, hypotheses)
    ]
    return [float(p) for p in torch.cat(rows)]


def bert_scores(
    model: SentenceModel,
    candidates: Sequence[str],
    references: Sequence[str],
    layer: int | None = None,
) -> list[float]:
    """BERTScore F1 of each pair (Zhang et al. 2020, eqs. 1 to 3), without idf weights and
    rescaling. As in the released implementation, special tokens may be matched but do not count.
    `layer`: of the hidden states; None: the last. Raises ModelError for a layer that the model does
    not have."""
    sides = [list(_token_vectors(model, texts, layer)) for texts in (candidates, references)]
    scores = []
    for (own, counts), (other, other_counts) in zip(*sides, strict=True):
        if not (
            counts.any() and other_counts.any()
        ):  # a text without words is like another one only
            scores.append(float(not counts.any() and not other_counts.any()))
            continue
        similarity = own @ other.T
        precision, recall = (
            similarity.amax(1)[counts].mean(),
            similarity.amax(0)[other_counts].mean(),
        )
        scores.append(float(2 * precision * recall / (precision + recall)))
    return scores


def _token_vectors(
    model: SentenceModel, texts: Sequence[str], layer: int | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each text: its tokens' unit vectors [N, H], and which of them are not special [N]."""
    for inputs, output in model.batches(texts, output_hidden_states=True):
        states = output.hidden_states
        if layer is not None and layer >= len(states):
            raise ModelError(
                f"similarity.bertscore_layer={layer}: {model.source} has no such layer; give 0 to "
                f"{len(states) - 1}"
            )
        vectors = torch.nn.functional.normalize(states[-1 if layer is None else layer], dim=-1)
        for row, there, special in zip(
            vectors,
            inputs["attention_mask"].bool(),
            inputs["special_tokens_mask"].bool(),
            strict=True,
        ):
            yield row[there], ~special[there]
