"""What the target says of texts, against transformers' own forward."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from methods import audit
from methods.audit import Text, scored
from methods.engine.loading import load_model
from methods.sampling import Sampling

TEXTS = [Text("a", [5, 9, 30], [40, 41, 7, 8]), Text("b", [6, 10], [50, 3])]


def reference(folder: Path, temperature: float, texts: list[Text] = TEXTS) -> np.ndarray:
    """log p [tokens, V] float64 of each emitted token's context."""
    model, rows = AutoModelForCausalLM.from_pretrained(folder), []
    for text in texts:
        ids = torch.tensor([[*text.prompt_ids, *text.output_ids]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(text.prompt_ids) - 1 : -1]
        rows.append((logits.double() / temperature).log_softmax(-1).numpy())
    return np.concatenate(rows)


@pytest.fixture(scope="module")
def models(pair_folder: Path):
    return [
        load_model(str(pair_folder / name), dtype="float32", device="cpu")
        for name in ("target", "draft")
    ]


def test_what_is_said_of_a_token_and_of_all_of_p(pair_folder: Path, models, monkeypatch) -> None:
    columns = scored(models[0], TEXTS, Sampling(0.7), models[1])
    log_p = reference(pair_folder / "target", 0.7)
    emitted = np.concatenate([text.output_ids for text in TEXTS])
    at, p = np.arange(6), np.exp(log_p)
    entropy = -(p * log_p).sum(-1)
    assert columns["surprisal"] == pytest.approx(-log_p[at, emitted], abs=1e-4)
    assert columns["entropy"] == pytest.approx(entropy, abs=1e-4)
    assert columns["variance"] == pytest.approx((p * log_p**2).sum(-1) - entropy**2, abs=1e-3)
    assert list(columns["text"]) == [0, 0, 0, 0, 1, 1]
    assert list(columns["position"]) == [0, 1, 2, 3, 0, 1]
    assert columns["excess"] == pytest.approx(0.7 * (log_p.max(-1) - log_p[at, emitted]), abs=1e-4)
    heat = np.log(np.exp((log_p - log_p.max(-1, keepdims=True)) * 0.7 * 2).sum(-1))
    assert columns["heat"][:, audit.COLDNESS.index(2.0)] == pytest.approx(heat, abs=1e-4)
    monkeypatch.setattr(audit, "PIECE_BYTES", 8 * 320)  # a token at a time
    again = scored(models[0], TEXTS, Sampling(0.7), models[1])
    for name, values in columns.items():
        assert again[name] == pytest.approx(values, abs=1e-4), name
    mass, log_q = np.exp(columns["log_mass"]), reference(pair_folder / "draft", 0.7)
    assert mass.sum(-1) == pytest.approx(1)
    # an expectation of a feature under p is that over the vocabulary
    mean = (mass[..., None] * columns["features"]).sum(1)
    assert mean[:, 0] * 5 == pytest.approx((p * np.maximum(log_p, audit.LEAST)).sum(-1), abs=1e-3)
    assert mean[:, 1] == pytest.approx(p.max(-1), abs=1e-5)
    assert mean[:, 5] * 5 == pytest.approx((p * np.maximum(log_q, audit.LEAST)).sum(-1), abs=1e-3)
    assert mean[:, 6] == pytest.approx(p[at, log_q.argmax(-1)], abs=1e-5)
    likely = np.sort(p, -1)[:, ::-1][:, : audit.TOP]
    assert mass[:, : audit.TOP] == pytest.approx(likely, abs=1e-6)


def test_excluded_tokens_and_what_rounding_explains(pair_folder: Path, models) -> None:
    log_p = reference(pair_folder / "target", 1.0)[0]
    order = np.argsort(-log_p)
    texts = [Text("a", TEXTS[0].prompt_ids, [int(order[rank])]) for rank in (0, 1, 40)]
    columns = scored(models[0], texts, Sampling(1.0, top_k=2))
    assert list(columns["excluded"]) == [0, 0, 2]
    two = log_p[order[:2]]
    assert columns["surprisal"][:2] == pytest.approx(np.logaddexp(*two) - two, abs=1e-4)
    assert columns["surprisal"][2] == 0
    greedy = scored(models[0], texts[:1], Sampling(0.0))
    assert greedy["excluded"][0] == 0 and greedy["variance"][0] == 0 == greedy["excess"][0]


def test_texts_without_their_end_tokens(pair_folder: Path, models) -> None:
    [end] = models[0].eos_ids
    columns = scored(models[0], TEXTS[:1], Sampling(1.0), without_end=True)
    log_p = reference(pair_folder / "target", 1.0, TEXTS[:1])
    left = np.log1p(-np.exp(log_p[:, end]))
    expected = log_p[np.arange(4), TEXTS[0].output_ids] - left
    assert columns["surprisal"] == pytest.approx(-expected, abs=1e-4)
