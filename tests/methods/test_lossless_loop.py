"""The whole decode loop emits exactly the target's distribution: joint law of three tokens, by exact enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from methods import registry
from methods.decode import Limits, Request, generate
from methods.method import build_method
from methods.sampling import Sampling
from tests.helpers.tiny_heads import model_for
from tests.helpers.tiny_models import language_model
from tests.helpers.tree_drafters import TreeDrafter, hashed

pytestmark = pytest.mark.slow

VOCAB, NEW, ROWS, DRAWS = 5, 3, 1000, 4_000
PROMPT = [1, 2, 3, 1, 2, 4, 1, 2]  # prompt lookup finds something after it
SAMPLING = Sampling(0.8, top_p=0.97)

CASES = {
    "model": ("model", {}, "lossless", {}),
    "model, deterministic": ("model", {"sample": False}, "lossless", {}),
    "model, stops early": ("model", {"stop_below": 0.3}, "lossless", {}),
    "model, distinct siblings": ("model", {"branching": [2, 2]}, "lossless", {}),
    "model, independent siblings": ("model", {"branching": [2, 2], "replacement": True}, "lossless", {}),
    "early exit": ("early_exit", {"exit_layer": 1}, "lossless", {}),
    "suffix": ("suffix", {}, "lossless", {}),
    "prompt lookup": ("prompt_lookup", {}, "lossless", {}),
    "lookahead": ("lookahead", {"level": 3, "window": 2, "guesses": 3, "pool_from_prompt": True}, "lossless", {}),
    "tree of siblings": (TreeDrafter(choose=hashed(VOCAB)), {}, "lossless", {}),
    "eagle": ("eagle", {"tree": "small_10"}, "lossless", {}),
    "eagle2": ("eagle2", {"total": 6, "depth": 1, "top_k": 2}, "lossless", {}),
    "eagle3, a vocabulary of three": ("eagle3", {"total": 5, "depth": 1, "top_k": 2}, "lossless", {}),
    "eagle3, sampled chain, stops early": ("eagle3", {"tree": "sampled", "stop_below": 0.3}, "lossless", {}),
    "medusa": ("medusa", {"tree": "small_10"}, "lossless", {}),
    "block": ("model", {}, "block", {}),
    "block, point masses": ("model", {"sample": False}, "block", {}),
    "traversal": ("model", {"branching": [2, 2]}, "traversal", {}),
    "traversal, eagle2": ("eagle2", {"tree": "sampled", "branching": [3, 2], "replacement": True}, "traversal", {}),
    "secure_sd, strict": ("model", {}, "secure_sd", {"relaxed": {"name": "lossy", "alpha": 0.0}, "start_eta": 0.5}),
}
BIASED = {
    "eagle3, q_mode draft": ("eagle3", {"total": 5, "depth": 1, "top_k": 2}, "lossless", {"q_mode": "draft"}),
    "mars sampling, theta 0.5": ("model", {}, "mars", {"variant": "sampling", "theta": 0.5}),
}


def soften(model):
    """Flatter logits, so that every sequence has a fair share of the draws."""
    with torch.no_grad():
        model.model.lm_head.weight.mul_(0.15)
    return model


@pytest.fixture(scope="module")
def pair():
    return (soften(language_model("llama", layers=2, seed=1, vocab=VOCAB)),
            soften(language_model("llama", layers=1, seed=2, vocab=VOCAB)))


@pytest.fixture(scope="module")
def exact(pair):
    """Probability of each sequence of three tokens, from the target alone."""
    paths = list(product(range(VOCAB), repeat=NEW))
    ids = torch.tensor([PROMPT + list(path) for path in paths])
    with torch.inference_mode():
        p = SAMPLING.probs(pair[0].model(ids, use_cache=False).logits[:, len(PROMPT) - 1:-1]).double()
    return paths, p.gather(-1, ids[:, len(PROMPT):, None])[..., 0].prod(-1).numpy()


def p_value(pair, exact, drafter, drafter_options, rule, rule_options) -> float:
    """Chi-square p-value of DRAWS generations against the exact law (sequences of tiny expectation pooled)."""
    model = None
    if isinstance(drafter, str):
        name, drafter = drafter, registry.drafter(drafter)(**drafter_options)
        model = pair[1] if drafter.model_role == "draft" else model_for(name, pair[0])
    method = build_method(pair[0], model, drafter, registry.rule(rule)(**rule_options), SAMPLING, 2)
    paths, probability = exact
    index = {path: i for i, path in enumerate(paths)}
    counts = np.zeros(len(paths))
    for start in range(0, DRAWS, ROWS):
        requests = [Request(PROMPT, f"0/law/{start + i}") for i in range(ROWS)]
        for generation in generate(method, requests, Limits(NEW, frozenset())):
            counts[index[tuple(generation.output_ids)]] += 1
    expected = probability / probability.sum() * DRAWS
    assert counts[probability == 0].sum() == 0, "a token outside top-p was emitted"
    common = expected >= 10
    pool = [counts[~common].sum()], [expected[~common].sum()]
    observed, wanted = np.append(counts[common], pool[0]), np.append(expected[common], pool[1])
    keep = wanted > 0
    return chisquare(observed[keep], wanted[keep] * observed[keep].sum() / wanted[keep].sum()).pvalue


@pytest.mark.parametrize("case", CASES)
def test_the_law_is_the_targets(pair, exact, case):
    assert p_value(pair, exact, *CASES[case]) > 1e-4


@pytest.mark.parametrize("case", BIASED)
def test_a_bias_is_detected(pair, exact, case):
    assert p_value(pair, exact, *BIASED[case]) < 1e-8
