"""The initial induction circuit: layer 0 records the preceding tokens, later heads find equal
ones."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from models.train.pair.induction_init import init_induction

LENGTH = 96


@pytest.mark.parametrize("hidden", [256, 128], ids=["target", "draft"])
def test_heads_look_back_and_up(hidden):
    """The heads of the first layer look 1, 2 and 3 tokens back; the first one of the second layer
    compares the note "token before me" with tokens: half the text back stands the same one."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    init_induction(model)
    model.set_attn_implementation("eager")
    half = LENGTH // 2
    tokens = torch.randperm(1024)[:half].repeat(2)[None]  # every token stands twice
    with torch.inference_mode():
        first, second = model(tokens, output_attentions=True).attentions
    for offset in (1, 2, 3):
        back = torch.arange(offset, LENGTH)
        assert first[0, offset - 1, back, back - offset].mean() > 0.8, offset
    later = torch.arange(half + 1, LENGTH)
    found = second[0, 0, later, later - half - 1] + second[0, 0, later, later - 1]
    assert found.mean() > 0.6
