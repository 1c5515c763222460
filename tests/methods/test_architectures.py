"""Small random models of many architectures are right or refused: never wrong."""

from __future__ import annotations

import pytest
import torch

from methods import registry
from methods.decode import Limits, Request, TooLong, generate
from methods.engine import probe
from methods.engine.language_model import LanguageModel
from methods.method import build_method
from methods.sampling import Sampling
from tests.helpers.architectures import config_of, outcome, random_model

LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 32,
    "factor": 4.0,
}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gpt_oss", "right"),
        ("deepseek_v3", "right"),
        ("llama4_text", "right"),
        ("bloom", "right, but no trees"),
        ("gemma3n_text", "right, but no hidden states"),
        ("recurrent_gemma", "refused: it keeps a recurrent state"),
        ("mamba", "refused: it keeps a recurrent state"),
        ("bert", "refused: the engine's logits"),
    ],
)
def test_architectures(kind: str, words: str) -> None:
    assert outcome(kind)[0].startswith(words)


@pytest.fixture(scope="module", params=["phi3", "llama", "qwen2"])
def long_rope(request: pytest.FixtureRequest) -> LanguageModel:
    size = {"head_dim": 8} if request.param == "llama" else {}
    factors = {"short_factor": [1.0] * 4, "long_factor": [3.0, 2.0, 5.0, 4.0]}
    return random_model(
        config_of(
            request.param,
            sliding_window=None,
            rope_parameters=LONG | factors,
            original_max_position_embeddings=32,
            **size,
        )
    )


def test_texts_up_to_the_boundary_have_one_set_of_frequencies(long_rope: LanguageModel) -> None:
    """Whatever stands beside them, and where a draft reaches beyond it; longer texts are
    refused."""
    rows = [[7, 8, 9] * 4, [7, 8, 9] * 7]
    with probe.unmodified(long_rope.model), torch.no_grad():
        want = []
        for row in rows:
            read = list(row)
            for _ in range(9):
                logits = long_rope.model(torch.tensor([read]), use_cache=False).logits
                read.append(int(logits[0, -1].argmax()))
            want.append(read[len(row) :])
    for options in ({}, {"branching": [2, 2]}):
        method = build_method(
            long_rope,
            long_rope,
            registry.drafter("model")(**options),
            registry.rule("greedy")(),
            Sampling(0.0),
            2 if options else 5,
        )
        for group in ([0], [1], [0, 1]):
            answers = generate(
                method, [Request(rows[i], "x") for i in group], Limits(9, frozenset())
            )
            assert [answer.output_ids for answer in answers] == [want[i] for i in group]
    with pytest.raises(TooLong, match=r"24 tokens and 10 new ones exceed its 32 positions"):
        generate(method, [Request([7, 8, 9] * 8, "x"), Request([7], "y")], Limits(10, frozenset()))
