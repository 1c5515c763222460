"""Models of meaning in the packages' own forms on disk: numbers recomputed text by text, in float64,
from the model's own hidden states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from bench.config.settings import Similarity
from bench.reports import meaning
from bench.reports.meaning import MeaningModels, lacking_package
from methods.engine.source import ModelError
from tests.helpers.ci import needs_similarity
from tests.helpers.rehearsal.models import save_sentence_model

LABELS = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
FIRST = ["the cat sat", "a dog ran the cat", "b", "a b c d e " * 12, ""]
SECOND = ["the dog sat a b", "a dog ran the cat", "c d", "e", "a"]


def models(**given: Any) -> MeaningModels:
    nothing = dict.fromkeys(("sentence", "entailment", "bertscore", "bertscore_layer"))
    options = Similarity(**{**nothing, "positions": 8, **given})
    return MeaningModels(options, "cpu", tuple(meaning.PACKAGES))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> str:
    return save_sentence_model(tmp_path_factory.mktemp("encoder"))


def states(encoder: str, text: str, layer: int = -1) -> np.ndarray:
    """Hidden states [N, H] of one text alone."""
    tokenizer, model = AutoTokenizer.from_pretrained(encoder), AutoModel.from_pretrained(encoder)
    ids = tokenizer(text, truncation=True, max_length=32, return_tensors="pt")
    with torch.inference_mode():
        hidden = model.eval()(**ids, output_hidden_states=True).hidden_states
    return hidden[layer][0].double().numpy()


@needs_similarity
def test_cosines_are_those_of_the_mean_of_the_states(encoder):
    means = [[states(encoder, text).mean(0) for text in texts] for texts in (FIRST, SECOND)]
    wanted = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(*means, strict=True)]
    scores = models(sentence=encoder).score("sentence", "", FIRST, SECOND)
    assert scores == pytest.approx(wanted, abs=1e-5)


@needs_similarity
def test_probabilities_of_a_label_are_those_of_the_pair(tmp_path):
    folder = save_sentence_model(tmp_path / "nli", LABELS)
    model = models(entailment=folder)
    scores = [model.score("entailment", label.lower(), FIRST, SECOND) for label in LABELS]
    assert np.sum(scores, axis=0) == pytest.approx(np.ones(len(FIRST)))
    alone = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for place in range(3):
        pair = tokenizer(FIRST[place], SECOND[place], return_tensors="pt")
        with torch.inference_mode():
            wanted = alone(**pair).logits.softmax(-1)[0]
        assert [of_label[place] for of_label in scores] == pytest.approx(wanted.tolist())
    with pytest.raises(ModelError, match="no label 'right', only contradiction, entailment, n"):
        model.score("entailment", "right", ["a"], ["b"])


@needs_similarity
@pytest.mark.parametrize("layer", [None, 0, 1])
def test_bertscore_matches_each_token_with_its_nearest(encoder, layer):
    wanted = []
    for one, other in zip(FIRST[:4], SECOND[:4], strict=True):
        a, b = (states(encoder, text, -1 if layer is None else layer) for text in (one, other))
        a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
        # [CLS] and [SEP] may be matched and do not count.
        precision = np.mean([max(float(v @ w) for w in b) for v in a[1:-1]])
        recall = np.mean([max(float(v @ w) for v in a) for w in b[1:-1]])
        wanted.append(2 * precision * recall / (precision + recall))
    model = models(bertscore=encoder, bertscore_layer=layer)
    scores = model.score("bertscore", "", [*FIRST, " "], [*SECOND, ""])
    assert scores == pytest.approx([*wanted, 0.0, 1.0], abs=1e-5)


@needs_similarity
def test_what_a_model_lacks_is_named(encoder, tmp_path):
    with pytest.raises(ModelError, match=r"bertscore_layer=9: .* has no such layer; give 0 to 2"):
        models(bertscore=encoder, bertscore_layer=9).score("bertscore", "", ["a"], ["b"])
    for measure in meaning.PACKAGES:
        with pytest.raises(ModelError, match=f"^similarity.{measure}=.*: cannot be loaded: .") as e:
            models(**{measure: str(tmp_path)}).score(measure, "", ["a"], ["b"])
        assert "\n" not in str(e.value)


def test_a_package_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(meaning, "find_spec", lambda name: None if name == "bert_score" else name)
    assert lacking_package(["sentence", "entailment"]) == ""
    assert lacking_package(["sentence", "bertscore"]) == (
        "similarity.bertscore: needs the package bert-score: pip install -e .[similarity]"
    )
