"""Draft models cut out of their target: the shared layers are the target's, the trained ones survive export and
loading, and what does not fit is one line."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from methods.engine.loading import joined, load_cut, own_part
from methods.engine.source import ModelError, Source
from methods.training.heads.base import FrozenTarget, choose
from methods.training.heads.trainers import TRAINERS, CutRecipe
from methods.training.packing import Batch
from tests.helpers.tiny_models import ARCHITECTURES, language_model, prompts

LAYERS = 4
RECIPE = CutRecipe(tokens=1024, batch_tokens=64, row_tokens=32, slots=20, steps=1, step_decay=1.0, optimiser="muon",
                   lr=0.01, adam_lr=0.002, warmup=1, decay=0.5, clip=1.0, save_every=10, target_layers=2, own_layers=1)


def shaken(target, seed: int = 3):
    own = own_part(target, 2, 1)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.normal_(0.5, 0.3) if parameter.ndim == 1 else parameter.normal_(0, 0.3)
    return own


def batch_of(rows: list[list[int]]) -> Batch:
    ids = torch.tensor(rows)
    positions = torch.arange(ids.shape[1]).expand(ids.shape)
    return Batch(ids, positions, torch.ones_like(ids), torch.ones(ids.shape))


@pytest.fixture
def exported(tmp_path):
    """A trainer with shaken weights, and the folder it wrote."""
    target = language_model("llama", layers=LAYERS)
    trainer = TRAINERS["draft"](RECIPE, FrozenTarget(target))
    trainer.head.load_state_dict(shaken(target).state_dict())
    trainer.export(tmp_path / "draft")
    return trainer, target, tmp_path / "draft"


@pytest.mark.parametrize("kind", ARCHITECTURES)
@torch.no_grad()
def test_a_cut_is_the_targets_first_layers_and_its_own(kind):
    target = language_model(kind, layers=LAYERS)
    own = shaken(target)
    cut = joined(target, own, "cut", "digits")
    assert cut.layers == 3 and cut.model.config.num_hidden_layers == 3
    ids = torch.tensor([prompts(1, low=12, high=12)[0]])
    inner = target.model(ids, output_hidden_states=True).hidden_states[2]
    mask = torch.ones(1, 1, 12, 12, dtype=torch.bool).tril()
    masks = {"full_attention": mask, "sliding_attention": mask.triu(-7)} if kind == "gemma2" else mask
    hidden = own(inputs_embeds=inner, position_ids=torch.arange(12)[None], attention_mask=masks).last_hidden_state
    assert torch.allclose(cut.model(ids).logits, target.head(hidden), atol=1e-4)
    cache = cut.new_cache(1, 32)
    assert torch.allclose(cut.prefill(ids.tolist(), cache).logits[0, 0], target.head(hidden)[0, -1], atol=1e-4)


def test_what_was_trained_is_what_drafts(exported):
    """The trainer's loss is the cross-entropy of the loaded cut's own distribution at the slots."""
    trainer, target, folder = exported
    assert Source.of(str(folder)).is_cut and not Source.of("HuggingFaceTB/SmolLM2-135M-Instruct").is_cut
    cut = load_cut(str(folder), target)
    trainer.head.load_state_dict(load_file(folder / "model.safetensors"))
    batch = batch_of(prompts(2, low=32, high=32))
    slots = choose(batch, 1, 20, torch.Generator().manual_seed(0))
    with torch.no_grad():
        step = next(trainer.steps(batch, trainer.frozen_target.states(batch, trainer.layers), slots,
                                  torch.Generator()))
        q = cut.model(batch.input_ids).logits.double().log_softmax(-1)
        p = target.model(batch.input_ids).logits.double().softmax(-1)
    each = [-(p[r, t + 1] * q[r, t + 1]).sum() for r, row in enumerate(slots.index.tolist()) for t in row]
    assert step.loss.item() == pytest.approx(torch.stack(each).mean().item(), rel=1e-5)


def test_the_file_holds_the_trained_layers_alone(exported):
    _, target, folder = exported
    tensors = load_file(folder / "model.safetensors")
    assert {name.split(".")[0] for name in tensors} == {"layers", "norm"}
    assert "embed" not in " ".join(tensors) and all(t.dtype == torch.bfloat16 for t in tensors.values())
    cut = load_cut(str(folder), target)
    shared = cut.model.base_model.layers[0].mlp.up_proj.weight
    assert shared.data_ptr() == target.model.base_model.layers[0].mlp.up_proj.weight.data_ptr()
    assert cut.embedding.data_ptr() == target.embedding.data_ptr()


def test_what_does_not_fit_is_one_line(exported):
    _, target, folder = exported
    with pytest.raises(ModelError, match=r"cut out of a target with vocab_size 64, and .* has 65"):
        load_cut(str(folder), language_model("llama", layers=LAYERS, vocab=65))
    with pytest.raises(ModelError, match="2 layers of its target and 1 of its own; llama-2-0 has 2"):
        load_cut(str(folder), language_model("llama", layers=2))
    tensors = load_file(folder / "model.safetensors")
    save_file({name: t for name, t in tensors.items() if name != "norm.weight"}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"missing tensors: norm\.weight"):
        load_cut(str(folder), target)
    save_file(tensors | {"layers.1.extra": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"unexpected tensors: layers\.1\.extra"):
        load_cut(str(folder), target)
    (folder / "config.json").write_text(json.dumps({"architectures": ["CutOfTarget"]}))
    with pytest.raises(ModelError, match="hidden_size None"):
        load_cut(str(folder), target)
