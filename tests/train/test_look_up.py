"""The initial induction circuit: layer 0 records the preceding tokens, later heads find equal
ones."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from models.train.pair.induction_init import init_induction

LENGTH = 96


@pytest.fixture(params=[(256, 4, 2), (128, 4, 2)], ids=["target", "draft"])
def attentions(request):
    hidden, heads, kv_heads = request.param
    torch.manual_seed(1)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=1024,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=2,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            tie_word_embeddings=True,
        )
    )
    init_induction(model)
    model.set_attn_implementation("eager")
    tokens = torch.randperm(1024)[: LENGTH // 2].repeat(2)[
        None
    ]  # every token stands twice, half the text apart
    with torch.inference_mode():
        return model(tokens, output_attentions=True).attentions


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_a_head_of_the_first_layer_looks_so_far_back(attentions, offset):
    scores = attentions[0][0, offset - 1]
    back = torch.arange(offset, LENGTH)
    assert scores[back, back - offset].mean() > 0.8


def test_the_second_layer_finds_where_the_token_before_stood_earlier(attentions):
    """Its first head compares the note "token before me" with tokens: half the text back stands the
    same one."""
    scores = attentions[1][0, 0]
    later = torch.arange(LENGTH // 2 + 1, LENGTH)
    found = scores[later, later - LENGTH // 2 - 1] + scores[later, later - 1]
    assert found.mean() > 0.6
    assert found.mean() > 20 * 2 / LENGTH
