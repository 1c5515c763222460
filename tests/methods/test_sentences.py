"""Models of meaning: numbers recomputed text by text, in float64, from the model's own hidden
states."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from methods.engine.sentences import SentenceModel, bert_scores, cosines, label_probabilities
from methods.engine.source import ModelError
from tests.helpers.rehearsal.models import save_sentence_model

LABELS = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
FIRST = ["the cat sat", "a dog ran the cat", "b", "a b c d e " * 12, ""]
SECOND = ["the dog sat a b", "a dog ran the cat", "c d", "e", "a"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return SentenceModel(save_sentence_model(tmp_path_factory.mktemp("encoder")), "cpu")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return SentenceModel(
        save_sentence_model(tmp_path_factory.mktemp("nli"), LABELS), "cpu", classifies=True
    )


def states(model: SentenceModel, text: str, layer: int = -1) -> np.ndarray:
    """Hidden states [N, H] of one text alone."""
    ids = model.tokenizer(text, truncation=True, max_length=32, return_tensors="pt")
    with torch.inference_mode():
        return (
            model.model(**ids, output_hidden_states=True).hidden_states[layer][0].double().numpy()
        )


def test_cosines_are_those_of_the_means_over_tokens(encoder):
    means = [[states(encoder, text).mean(0) for text in texts] for texts in (FIRST, SECOND)]
    wanted = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(*means, strict=True)]
    assert cosines(encoder, FIRST, SECOND) == pytest.approx(wanted, abs=1e-5)
    assert cosines(encoder, FIRST, FIRST) == pytest.approx([1] * len(FIRST))


@pytest.mark.parametrize("layer", [None, 0, 1])
def test_bertscore_matches_each_token_with_its_nearest(encoder, layer):
    wanted = []
    for one, other in zip(FIRST[:4], SECOND[:4], strict=True):
        a, b = (states(encoder, text, -1 if layer is None else layer) for text in (one, other))
        a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
        precision = np.mean(
            [max(float(v @ w) for w in b) for v in a[1:-1]]
        )  # without [CLS] and [SEP]
        recall = np.mean([max(float(v @ w) for v in a) for w in b[1:-1]])
        wanted.append(2 * precision * recall / (precision + recall))
    assert bert_scores(encoder, FIRST[:4], SECOND[:4], layer) == pytest.approx(wanted, abs=1e-5)


def test_probabilities_of_a_label_are_those_of_the_pair(classifier):
    found = {
        label: label_probabilities(classifier, label.lower(), FIRST, SECOND) for label in LABELS
    }
    assert np.sum(list(found.values()), axis=0) == pytest.approx(np.ones(len(FIRST)))
    pair = classifier.tokenizer(FIRST[1], SECOND[0], return_tensors="pt")
    with torch.inference_mode():
        alone = classifier.model(**pair).logits.softmax(-1)[0, 2]
    assert label_probabilities(classifier, "entailment", FIRST[1:2], SECOND[:1]) == pytest.approx(
        [float(alone)]
    )


def test_what_a_model_lacks_is_named(encoder, classifier, tmp_path):
    with pytest.raises(ModelError, match=r"bertscore_layer=9: .* has no such layer; give 0 to 2"):
        bert_scores(encoder, ["a"], ["b"], layer=9)
    with pytest.raises(
        ModelError, match="no label 'right', only contradiction, entailment, neutral"
    ):
        label_probabilities(classifier, "right", ["a"], ["b"])
    with pytest.raises(ModelError, match="cannot be loaded"):
        SentenceModel(str(tmp_path), "cpu")
