"""A model whose weights are not those of its configuration is refused in one line; draft models cut
out of their target."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from methods.engine.loading import load_cut, load_model
from methods.engine.source import ModelError, ModelSource
from tests.helpers.tiny_models import ARCHITECTURES, language_model, prompts, save_cut


@pytest.fixture
def folder(pair_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(pair_folder / "target", tmp_path / "target")
    return tmp_path / "target"


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def test_tables_that_are_computed_anew_are_no_surplus(folder: Path) -> None:
    want = load_model(str(folder)).model.state_dict()
    rewrite(
        folder,
        lambda tensors: tensors.update(
            {
                "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4),
                "medusa_head.0.1.weight": torch.ones(2, 2),
            }
        ),
    )
    assert load_model(str(folder)).model.state_dict().keys() == want.keys()


def test_thinking_is_switched_in_the_template(folder: Path) -> None:
    """As Qwen3's template reads it: an empty thought precedes the answer where thinking is off."""
    said = [{"role": "user", "content": "3 + 4?"}]
    template = (
        "{{ messages[0]['content'] }}{% if enable_thinking is defined and enable_thinking is "
        "false %}<think></think>{% endif %}"
    )
    (folder / "chat_template.jinja").write_text(template)
    texts = {
        thinking: (model := load_model(str(folder), thinking=thinking)).decode(model.encode(said))
        for thinking in (None, True, False)
    }
    assert texts == {None: "3 + 4?", True: "3 + 4?", False: "3 + 4?<think></think>"}
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    with pytest.raises(ModelError, match=r"knows no enable_thinking; give pair\.thinking=null"):
        load_model(str(folder), thinking=False)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@torch.no_grad()
def test_a_cut_is_the_targets_first_layers_and_its_own(kind: str, tmp_path: Path) -> None:
    target = language_model(kind, layers=4)
    folder = save_cut(tmp_path / "cut", target, shared=2, noise=0.1)
    cut, own = load_cut(str(folder), target), load_file(folder / "model.safetensors")
    assert (
        ModelSource.of(str(folder)).is_cut
        and not ModelSource.of("HuggingFaceTB/SmolLM2-135M-Instruct").is_cut
    )
    assert cut.layers == 3 and cut.model.config.num_hidden_layers == 3
    whole = copy.deepcopy(target.first_layers(3)).model
    parts = {f"model.{name.replace('layers.0', 'layers.2')}": x for name, x in own.items()}
    assert not whole.load_state_dict(parts, strict=False).unexpected_keys
    [ids] = prompts(1, low=12, high=12)
    want = whole(torch.tensor([ids])).logits
    assert torch.allclose(cut.model(torch.tensor([ids])).logits, want, atol=1e-4)
    assert torch.allclose(
        cut.prefill([ids], cut.new_cache(1, 32)).logits[0, 0], want[0, -1], atol=1e-4
    )
