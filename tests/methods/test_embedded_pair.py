"""The shipped pair: plain Hugging Face folders, and greedy equality on real prompts with every drafter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.loading import load_model
from methods.method import build_method
from methods.sampling import Sampling
from tasks.mini import BENCHMARKS, MiniTask

pytestmark = pytest.mark.slow

PAIR = Path(__file__).parents[2] / "models" / "tiny"
PER_TASK, NEW = 1, 32
SIZES = {"lookahead": {"window": 4, "guesses": 4}}  # the papers' have 120 nodes a cycle


@pytest.fixture(scope="module")
def pair():
    return {part: load_model(str(PAIR / part)) for part in ("target", "draft")}


@pytest.fixture(scope="module")
def token_rows(pair):
    """A prompt of each benchmark."""
    return [pair["target"].encode([{"role": "user", "content": prompt.turns[0]}])
            for name in BENCHMARKS for prompt in MiniTask(name).prompts(PER_TASK, 0)]


@pytest.fixture(scope="module")
def reference(pair, token_rows):
    """What `transformers.generate` answers, with the stock attention."""
    model = AutoModelForCausalLM.from_pretrained(PAIR / "target", dtype=torch.float32).eval()
    answers = []
    for ids in token_rows:
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                             max_new_tokens=NEW, do_sample=False)
        answers.append(out[0, len(ids):].tolist())
    return answers


@pytest.mark.parametrize("drafter", [name for name in registry.names("drafters") if name != "hass"])  # none is shipped
def test_greedy_equals_transformers(pair, token_rows, reference, drafter):
    options = registry.drafter(drafter)(**SIZES.get(drafter, {}))
    model = pair.get(options.model_role)
    if options.model_role and model is None:
        folder = str(PAIR / options.model_role)
        model = options.load(folder, pair["target"], revision=None, dtype="float32", device="cpu")
    method = build_method(pair["target"], model, options, registry.rule("greedy")(), Sampling(0.0), 5)
    limits = Limits(NEW, method.target.eos_ids)
    found = []
    for at in range(0, len(token_rows), 5):
        requests = [Request(ids, f"equal/{at + i}") for i, ids in enumerate(token_rows[at:at + 5])]
        found += generate(method, requests, limits)
    assert [g.output_ids for g in found] == reference
    if options.has_q:
        cycles = [a for g in found for a in g.accepted]
        most = 5 if drafter == "model" else 8
        assert 1.0 < sum(cycles) / len(cycles) < most  # a trained draft is right often, not always
