"""Early exit against a model that has the first layers only and no cache; what it refuses."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from methods import registry
from methods.decode import Limits, Request, generate
from methods.drafters import model as early_exit
from methods.engine.language_model import LanguageModel
from methods.engine.source import ModelError
from methods.method import build_method
from methods.sampling import Sampling
from tests.helpers.tiny_models import language_model, prompts

LAYERS, NEW, K = 3, 12, 3


def method_of(target, exit_layer: int, **options):
    drafter = registry.drafter("early_exit")(exit_layer=exit_layer, **options)
    return build_method(target, None, drafter, registry.rule("lossless")(), Sampling(1.0), K)


def shortened(target, layers: int):
    """A model of its own with the first layers, norm and head of the target."""
    config = copy.deepcopy(target.model.config)
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    weights = target.model.state_dict()
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    return model


@pytest.mark.parametrize(("kind", "exit_layer"), [("llama", 1), ("qwen3", 2), ("gemma2", 2)])
def test_drafts_come_from_the_first_layers(monkeypatch, kind, exit_layer):
    """Every draft distribution of ragged rows, over a whole generation: the shared cache holds what it should."""
    log = []
    propose = early_exit._FirstLayers.propose

    def watch(self, rows, u):
        draft = propose(self, rows, u)
        log.append(([list(row) for row in rows], draft))
        return draft
    monkeypatch.setattr(early_exit._FirstLayers, "propose", watch)
    target, token_rows = language_model(kind, layers=LAYERS), prompts(3)
    requests = [Request(ids, f"exit/{i}") for i, ids in enumerate(token_rows)]
    found = generate(method_of(target, exit_layer), requests, Limits(NEW, frozenset()))
    accepted = [a for g in found for a in g.accepted]
    assert 0 < sum(accepted) < K * len(accepted)
    short = shortened(target, exit_layer)
    for rows, draft in log:
        assert draft.sampled and draft.q.min() > 0
        for b, row in enumerate(rows):
            if len(row) == len(token_rows[b]) + NEW:
                continue  # finished: what it drafts does not matter
            with torch.inference_mode():
                logits = short(torch.tensor([row + draft.tokens[b, 1:K].tolist()]), use_cache=False).logits[0]
            assert torch.allclose(draft.logits[b, :K], logits[len(row) - 1:], atol=1e-4)


@pytest.mark.parametrize("exit_layer", [LAYERS, LAYERS + 5])
def test_refuses_an_exit_that_leaves_nothing_out(exit_layer):
    with pytest.raises(ModelError, match=rf"^drafter.exit_layer={exit_layer}: llama-3-0 has 3 layers, .* give 1 to 2$"):
        method_of(language_model("llama", layers=LAYERS), exit_layer)


def test_a_model_that_calls_its_layers_otherwise_is_refused() -> None:
    config = AutoConfig.for_model("gpt2", vocab_size=64, n_embd=16, n_layer=3, n_head=2)
    target = LanguageModel("gpt2", AutoModelForCausalLM.from_config(config), None, "test")
    with pytest.raises(ModelError, match="a gpt2 model cannot be ended after some of its layers; take another drafter"):
        method_of(target, 1)
