"""Small random models of many architectures are right or refused: never wrong."""

from __future__ import annotations

import pytest

from methods.decode import Limits, Request, TooLong, generate
from tests.helpers.architectures import LENGTHS, config_of, outcome, random_model, wrong_answers
from tests.helpers.decoding import method_on


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
    assert outcome(kind).startswith(words)


@pytest.mark.parametrize(
    ("kind", "size"), [("phi3", {}), ("llama", {"head_dim": 8}), ("qwen2", {})]
)
def test_texts_up_to_the_boundary_have_one_set_of_frequencies(kind: str, size: dict) -> None:
    """Whatever stands beside them, and where a draft reaches beyond it; longer texts are
    refused."""
    boundary = {"original_max_position_embeddings": LENGTHS[-1] + 12}
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "short_factor": [1.0] * 4,
        "long_factor": [3.0, 2.0, 5.0, 4.0],
    }
    config = config_of(
        kind, sliding_window=None, rope_parameters=rope | boundary, **boundary, **size
    )
    target = random_model(config)
    assert wrong_answers(target, new=12) == ([], set())
    asked = [Request([7] * 33, "x"), Request([7], "y")]
    words = (
        r"33 tokens and 10 new ones exceed its 42 positions; lower .*max_new_tokens to 9 or less"
    )
    with pytest.raises(TooLong, match=words):
        generate(method_on(target), asked, Limits(10, frozenset()))
    with pytest.raises(TooLong, match="no room for an answer in its 42 positions; shorten the pr"):
        generate(method_on(target), [Request([7] * 42, "x")], Limits(1, frozenset()))
