"""Medusa: the official file formats, and the draft it makes of them."""

from __future__ import annotations

import copy
import json
from functools import cache

import pytest
import torch
from safetensors.torch import save_file

from methods.drafters.medusa import MedusaDrafter
from methods.engine.source import ModelError
from methods.heads.medusa import MedusaHeads, load_medusa
from methods.method import build_method
from methods.rules.lossless import Lossless
from methods.sampling import Sampling
from methods.trees import static
from tests.helpers.fitted_heads import fitted_medusa
from tests.helpers.tiny_models import VOCAB, language_model, prompts

NEW = 24
COLD = Sampling(0.0)


@cache
def target_and_heads(kind: str):
    target = language_model(kind, layers=3)
    return target, fitted_medusa(target, prompts(6), new=NEW)


def medusa(kind="llama", rule=None, tree="medusa_63", sampling=COLD):
    return build_method(*target_and_heads(kind), MedusaDrafter(tree=tree), rule or Lossless(), sampling, 4)


def test_the_draft_is_the_heads_best_guesses():
    """Tokens, q and logits of every node from the formula, in float64."""
    target, model = target_and_heads("llama")
    heads = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in heads.model.parameters():  # blocks that are not the identity
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    method = build_method(target, heads, MedusaDrafter(), Lossless(q_mode="draft"), Sampling(1.0), 4)
    rows = [[3, 1], [2, 9, 4]]
    proposer = method.drafter.start(target, heads, method.draft, rows, 64)
    states = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))
    proposer.on_features(states, [[0, 2, 4], [1]])
    draft = proposer.propose(rows, torch.zeros(2, 0))
    tree = static.load("medusa_63")
    for row, at in enumerate((4, 1)):
        x = states[row, at].double()
        guesses = []
        for head in heads.model.double():
            y = x + torch.nn.functional.silu(head[0].linear.weight @ x + head[0].linear.bias)
            guesses.append(head[1].weight @ y)
        assert draft.tokens[row, 0] == rows[row][-1] and draft.q[row, 0] == 1
        for i in range(1, tree.nodes):
            z = guesses[tree.depth[i] - 1]
            assert draft.tokens[row, i] == z.argsort(descending=True)[tree.ranks[i]]
            assert float(draft.q[row, i]) == pytest.approx(float(z.softmax(-1)[draft.tokens[row, i]]), abs=1e-6)
            torch.testing.assert_close(draft.logits[row, tree.parents[i]].double(), z, atol=1e-4, rtol=1e-4)
    assert draft.parents.tolist() == [list(tree.parents)] and draft.depth.tolist() == [list(tree.depth)]


def checkpoint(folder, tensors, file="medusa_lm_head.pt"):
    folder.mkdir(exist_ok=True)
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "org/model"}
    (folder / "config.json").write_text(json.dumps(config))  # the published files say 2 where they hold 5
    path = folder / file
    torch.save(tensors, path) if path.suffix in (".pt", ".bin") else save_file(tensors, path)
    return str(folder)


def tensors_of(heads=5, layers=1, size=32, vocab=VOCAB):
    torch.manual_seed(0)
    return {name: tensor.clone() for name, tensor in MedusaHeads(heads, size, vocab, layers).state_dict().items()}


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("file", ["medusa_lm_head.pt", "medusa_lm_head.safetensors", "model.safetensors"])
def test_official_files(tmp_path, file, layers):
    given = tensors_of(layers=layers)
    written = dict(given)
    if file == "model.safetensors":  # Medusa-2: heads and backbone in one checkpoint
        written = {f"medusa_head.{name}": tensor for name, tensor in given.items()}
        written["lm_head.weight"] = torch.ones(3, 2)
    found = load_medusa(checkpoint(tmp_path / "heads", written, file), language_model())
    assert len(found.model) == 5 and found.model.layers == layers
    assert found.vocab_size == VOCAB and found.full_vocabulary
    for name, tensor in found.model.state_dict().items():
        assert torch.equal(tensor, given[name])


@pytest.mark.parametrize("change,said", [
    (lambda t: t.pop("3.0.linear.bias"), "missing 3.0.linear.bias"),
    (lambda t: t.update({"1.0.linear.bias": torch.ones(2)}), "1.0.linear.bias 2 instead of 32"),
    (lambda t: t.clear() or t.update({"fc.weight": torch.ones(2)}), "no Medusa heads"),
])
def test_what_does_not_fit_is_named(tmp_path, change, said):
    tensors = tensors_of()
    change(tensors)
    with pytest.raises(ModelError) as error:
        load_medusa(checkpoint(tmp_path / "heads", tensors), language_model())
    assert said in str(error.value) and "\n" not in str(error.value)


def test_heads_of_another_target_are_refused(tmp_path):
    with pytest.raises(ModelError, match="made for a target of hidden size 16 and vocabulary 64"):
        load_medusa(checkpoint(tmp_path / "a", tensors_of(size=16)), language_model())
    with pytest.raises(ModelError, match="vocabulary 99"):
        load_medusa(checkpoint(tmp_path / "b", tensors_of(vocab=99)), language_model())


def test_a_shape_alone_gives_random_heads(tmp_path):
    source = f"random:{checkpoint(tmp_path / 'heads', tensors_of(3))}"
    assert len(load_medusa(source, language_model()).model) == 3
    (tmp_path / "heads" / "medusa_lm_head.pt").unlink()
    found = load_medusa(source, language_model()).model
    assert len(found) == 2 and found[0][-1].weight.std() > 0  # config.json says 2


def test_a_tree_deeper_than_the_heads_is_refused():
    with pytest.raises(ModelError, match="eagle_25 is 5 tokens deep and fitted has 4 heads"):
        medusa(tree="eagle_25")
