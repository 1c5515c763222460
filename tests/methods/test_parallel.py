"""A model in parts: the pieces are the whole, what cannot be divided is refused, and layers on several devices give the
logits of one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.engine.cut import joined, own_part
from methods.engine.families import check_division
from methods.engine.language_model import LanguageModel
from methods.engine.loading import load_model
from methods.engine.parallel import BY_INPUTS, HEAD, part_of, piece
from methods.engine.source import ModelError
from methods.engine.spread import SpreadCache, SpreadDecoder
from methods.engine.team import Team
from tests.helpers.tiny_models import language_model, prompts

TINY = Path(__file__).parents[2] / "models" / "tiny" / "target"
SMOLLM = {"model_type": "llama", "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 48}


@given(size=st.sampled_from([1, 2, 4]), vocabulary=st.integers(1, 19))
def test_the_pieces_of_all_ranks_are_the_whole(size: int, vocabulary: int) -> None:
    q, down, head = torch.randn(8, 3), torch.randn(3, 8), torch.randn(vocabulary, 3)
    teams = [Team(rank, size) for rank in range(size)]

    def pieces(name: str, whole: torch.Tensor) -> list[torch.Tensor]:
        return [piece(name, whole, team) for team in teams]

    assert torch.equal(torch.cat(pieces("model.layers.0.self_attn.q_proj.weight", q)), q)
    assert torch.equal(torch.cat(pieces("model.layers.0.self_attn.q_proj.bias", q[:, 0])), q[:, 0])
    assert torch.equal(torch.cat(pieces("model.layers.0.mlp.down_proj.weight", down), 1), down)
    assert torch.equal(sum(pieces("model.layers.0.mlp.down_proj.bias", down[:, 0])), down[:, 0])
    rows = torch.cat(pieces(HEAD, head))
    assert torch.equal(rows[:vocabulary], head) and not rows[vocabulary:].any() and len(rows) % size == 0
    assert all(torch.equal(one, q) for one in pieces("model.embed_tokens.weight", q))


def test_a_part_is_a_model_with_fewer_heads() -> None:
    whole = language_model("qwen3").model
    part = part_of("it", whole, Team(1, 2), "cpu")
    assert (part.config.num_attention_heads, part.config.num_key_value_heads, part.config.head_dim) == (2, 1, 24)
    sizes = [sum(parameter.numel() for parameter in model.model.layers.parameters()) for model in (whole, part)]
    norms = sum(parameter.numel() for name, parameter in whole.model.layers.named_parameters() if "norm" in name)
    assert 2 * (sizes[1] - norms) == sizes[0] - norms
    assert all(name.endswith(BY_INPUTS) == hasattr(layer, "total") for name, layer in part.model.named_modules())


@pytest.mark.parametrize(("config", "devices", "words"), [
    (SMOLLM, 2, ("9 heads, 3 key-value heads", "give engine.devices=3, or engine.parallel=layers")),
    (SMOLLM | {"num_key_value_heads": 1}, 3, ("1 key-value heads", "give engine.parallel=layers")),
    (SMOLLM | {"model_type": "qwen3_moe"}, 3, ("model_type is qwen3_moe", "take engine.parallel=layers")),
])
def test_what_cannot_be_divided_is_refused(config: dict, devices: int, words: tuple[str, ...]) -> None:
    check_division("it", SMOLLM, 3)
    with pytest.raises(ModelError) as refused:
        check_division("it", config, devices)
    assert all(word in str(refused.value) for word in words) and "\n" not in str(refused.value)


def test_a_part_decodes_only_with_the_others() -> None:
    part = part_of("it", language_model().model, Team(0, 2), "cpu")
    with pytest.raises(ModelError, match=re.escape("decodes in one process")):
        part.lm_head(torch.zeros(1, 32))


def saved(model: LanguageModel, folder: Path) -> None:
    """A checkpoint of the model, with the embedded target's tokenizer."""
    model.model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, folder)


@pytest.mark.parametrize("kind", ["llama", "mixtral"])
@torch.inference_mode()
def test_layers_on_several_devices_give_the_logits_of_one(kind: str, tmp_path: Path) -> None:
    """On the CPU all stages lie on one device, so that the bits are equal; mixtral has no lean decoder."""
    saved(language_model(kind, layers=5), tmp_path)
    one, spread = (load_model(str(tmp_path), devices=devices) for devices in (1, 3))
    assert spread.stages == [0, 0, 1, 1, 2] and isinstance(spread.lean, SpreadDecoder) == (kind == "llama")
    rows = prompts(2)
    caches = [model.new_cache(2, 64) for model in (one, spread)]
    assert isinstance(caches[1], SpreadCache) and caches[0].nbytes == caches[1].nbytes
    firsts = [model.prefill(rows, cache).logits for model, cache in zip((one, spread), caches, strict=True)]
    assert torch.equal(*firsts)
    tree = {"ancestors": torch.tensor([[[1, 0, 0], [1, 1, 0], [1, 0, 1]]], dtype=torch.bool),
            "depth": torch.tensor([[0, 1, 1]])}
    for model, cache in zip((one, spread), caches, strict=True):
        model.forward(torch.tensor([[5, 6, 7], [8, 9, 10]]), cache, **tree)
        cache.compact(torch.tensor([[0, 2], [0, 1]]))
        cache.commit([2, 2])
    after = [model.forward(torch.tensor([[3], [4]]), cache, features=(1, 4), hidden=True)
             for model, cache in zip((one, spread), caches, strict=True)]
    assert all(torch.equal(getattr(after[0], name), getattr(after[1], name))
               for name in ("logits", "hidden", "features"))


def test_a_draft_cut_out_of_a_spread_target_shares_its_layers(tmp_path: Path) -> None:
    """Its own layers lie on the first device, behind shared ones of the second."""
    saved(language_model("llama", layers=5), tmp_path)
    one, spread = (load_model(str(tmp_path), devices=devices) for devices in (1, 3))
    own = own_part(one, 3, 2).to(one.device)
    cuts = [joined(target, own, "cut", "digits") for target in (one, spread)]
    assert cuts[1].stages == [0, 0, 1, 0, 0]
    rows, logits = prompts(2), []
    with torch.inference_mode():
        for cut in cuts:
            cache = cut.new_cache(2, 64)
            first = cut.prefill(rows, cache).logits
            logits.append(torch.cat([first, cut.forward(torch.tensor([[3], [4]]), cache).logits], 1))
    assert torch.equal(*logits)
