"""The likelihood of an answer against one plain forward of the stock model, whatever the batch and the pieces."""

from __future__ import annotations

import pytest
import torch

from methods.engine import likelihood
from tests.helpers.tiny_models import language_model, prompts


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("piece", [4, 128])
def test_against_one_plain_forward(kind: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "PIECE", piece)
    target = language_model(kind)
    contexts, answers = prompts(4, seed=0), prompts(4, seed=1, low=1, high=13)
    answers[2] = answers[2][:1]
    answers[3] = []
    expected = []
    for before, answer in zip(contexts, answers, strict=True):
        with torch.inference_mode():
            logits = target.model(torch.tensor([before + answer])).logits[0].double()
        log_p = logits.log_softmax(-1)
        expected.append(-sum(float(log_p[len(before) - 1 + i, token]) for i, token in enumerate(answer)))
    assert likelihood.emitted_nll(target, contexts, answers) == pytest.approx(expected, abs=1e-3)
    assert likelihood.emitted_nll(target, contexts[:1], answers[:1]) == pytest.approx(expected[:1], abs=1e-3)
