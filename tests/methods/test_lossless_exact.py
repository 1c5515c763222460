"""What a lossless rule emits has the target's distribution: by enumeration of every draft and every
outcome, and by draws of the whole loop."""

from __future__ import annotations

import copy
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.language_model import LanguageModel
from methods.method import build_method
from methods.rules.base import DraftCapabilities, Rule
from methods.rules.lossless import Lossless
from methods.rules.verification import Verification
from methods.rules.whole import Block, Traversal, alphas, thresholds
from methods.sampling import Sampling
from methods.trees.draft import Draft
from methods.trees.static import regular
from tests.helpers.path_reference import drawn_law
from tests.helpers.rule_cases import outcomes
from tests.helpers.tiny_heads import model_for
from tests.helpers.tiny_models import language_model
from tests.helpers.toy_trees import Toy, emitted_law, mean_length, total_variation
from tests.helpers.tree_drafters import TreeDrafter, hashed

SETTINGS = [Sampling(1.0), Sampling(0.7, top_k=2)]
TREES = [((2, 2), 2), ((2,), 3), ((3,), 2), ((1, 2), 2)]


def apart(
    process: Toy, rule: Rule, v: Verification, mass: Tensor, stops: Tensor, tokens: int
) -> float:
    """Total variation between the law of the process and that of what the rule emits, where its
    drafts end like `stops` [B, N] and the process goes on behind them; of so many tokens."""
    rule.decide(v)
    weights = [rule.emit(v, torch.full((len(v.u),), node)) for node in range(v.draft.nodes)]
    law = process.continued(emitted_law(v, mass, stops, weights), tokens)
    return total_variation(law, process.law(tokens))


def block_stops(v: Verification, law: Tensor | None = None) -> Tensor:
    """[B, N] P(the kept prefix ends at the node): the deepest that passes its own test."""
    h = torch.where(v.draft.valid, thresholds(v, law), 0.0)
    h[:, 0] = 1.0
    later = (1.0 - h).flip(1).cumprod(1).flip(1).roll(-1, 1)
    later[:, -1] = 1.0
    return h * later


def traversal_stops(v: Verification) -> Tensor:
    """[B, N] P(the node is accepted): it passes, and none did that is tested before it, children
    first."""
    tested = torch.where(v.draft.valid, alphas(v)[1], 0.0)
    parents, stops = v.draft.parents[0].tolist(), torch.zeros_like(tested)
    untested = torch.ones_like(tested[:, 0])

    def visit(node: int) -> None:
        nonlocal untested
        for child in (i for i, parent in enumerate(parents) if parent == node):
            visit(child)
        stops[:, node] = untested * tested[:, node]
        untested = untested * (1.0 - tested[:, node])

    visit(0)
    return stops


def token_wise_stops(v: Verification) -> Tensor:
    stops = torch.zeros_like(v.u)
    for row, paths in enumerate(outcomes(Lossless(), v)):
        for path, mass in paths.items():
            stops[row, path[-1]] += mass
    return stops


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_block_on_chains(seed: int, sampling: Sampling) -> None:
    toy = Toy.random(seed, sampling)
    for length in (1, 2, 3):
        v, mass = toy.drafts((), length, replacement=True)
        assert apart(toy, Block(), v, mass, block_stops(v), length + 1) < 1e-12
        gain = mean_length(v, mass, block_stops(v)) - mean_length(v, mass, token_wise_stops(v))
        assert gain > (1e-3 if length > 1 and sampling.top_k == 0 else -1e-6)
        torch.testing.assert_close(block_stops(v), traversal_stops(v), rtol=0, atol=1e-12)


def relaxed(toy: Toy, lam: float) -> Toy:
    """Its target is tilted's law."""
    p, q = (toy.sampling.probs(raw).numpy() for raw in (toy.target, toy.draft))
    laws = np.array([drawn_law(*rows, lam) for rows in zip(p, q, strict=True)])
    return Toy(torch.tensor(laws).log(), toy.draft, toy.sampling)


@pytest.mark.parametrize("lam", [2.0, 0.5, 0.2])
@pytest.mark.parametrize("seed", range(3))
def test_block_towards_tilted_on_chains(seed: int, lam: float) -> None:
    """Texts have tilted's law for as many tokens as were drafted, and more is kept than losslessly."""
    toy, rule, length = Toy.random(seed, Sampling(1.0)), Block(towards="tilted", lam=lam), 3
    process = relaxed(toy, lam)
    v, mass = toy.drafts((), length, replacement=True)
    towards = process.target.exp()[v.draft.tokens]
    stops = block_stops(v, towards)
    assert apart(process, rule, v, mass, stops, length) < 1e-6
    assert mean_length(v, mass, stops) > mean_length(v, mass, block_stops(v)) + 1e-3
    tests = torch.rand((64, 1, v.draft.nodes), generator=torch.Generator().manual_seed(0))
    least = torch.where(v.draft.valid, thresholds(v, towards), 0.0)
    for u in tests:
        v.u = u.expand(v.u.shape).double()
        deepest = torch.where(v.u < least, v.draft.depth, 0).amax(1, keepdim=True)
        close = (v.u - least).abs().min() < 1e-5
        assert close or torch.equal(rule.decide(v).accept, v.draft.depth <= deepest)


def test_block_towards_tilted_needs_drawn_tokens() -> None:
    with pytest.raises(ValueError, match="towards=tilted is defined for drawn tokens"):
        Block(towards="tilted").check(
            DraftCapabilities("eagle3", True, sampled=False), Sampling(1.0)
        )


@pytest.mark.parametrize("replacement", [True, False], ids=["independent", "distinct"])
@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("branching,depth", TREES, ids=str)
def test_traversal_on_trees(
    branching: tuple[int, ...], depth: int, sampling: Sampling, replacement: bool
) -> None:
    for seed in range(2):
        toy = Toy.random(seed, sampling)
        v, mass = toy.drafts(branching, depth, replacement)
        assert float(mass.sum()) == pytest.approx(1.0)
        stops, token_wise = traversal_stops(v), token_wise_stops(v)
        assert apart(toy, Traversal(), v, mass, stops, depth + 1) < 1e-12
        assert mean_length(v, mass, stops) > mean_length(v, mass, token_wise) - 1e-6
        # its tests are found by bisection
        assert apart(toy, Lossless(), v, mass, token_wise, depth + 1) < 1e-6


@pytest.mark.parametrize("replacement", [True, False], ids=["independent", "distinct"])
@pytest.mark.parametrize("branching,depth", TREES, ids=str)
def test_traversal_towards_tilted_on_trees(
    branching: tuple[int, ...], depth: int, replacement: bool
) -> None:
    """Texts have tilted's law for as many tokens as were drafted, and more is kept than losslessly."""
    toy, rule = Toy.random(0, Sampling(1.0)), Traversal(towards="tilted", lam=0.5)
    v, mass = toy.drafts(branching, depth, replacement)
    stops = traversal_stops(rule._relaxed(v))
    assert apart(relaxed(toy, 0.5), rule, v, mass, stops, depth) < 1e-6
    assert mean_length(v, mass, stops) > mean_length(v, mass, traversal_stops(v)) + 1e-3


class VocabularyRows(TorchDispatchMode):
    """Counts the rows of V numbers that operators give."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.vocab, self.count = vocab, 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self.count += sum(
            x.numel() // self.vocab
            for x in tree_leaves(result)
            if isinstance(x, Tensor) and x.shape[-1:] == (self.vocab,)
        )
        return result


@pytest.mark.parametrize("replacement", [True, False], ids=["independent", "distinct"])
def test_traversal_works_on_each_context_once(replacement: bool) -> None:
    """Its work over the vocabulary grows with the contexts, and not with contexts times depth."""
    rows, vocab, draw = [], 97, torch.Generator().manual_seed(0)
    for depth in (1, 5):
        shape = regular((2, 2), depth)
        logits, z = torch.randn(2, 1, shape.nodes, vocab, generator=draw)
        tokens, parents = torch.arange(shape.nodes)[None] % vocab, torch.tensor([shape.parents])
        q = torch.full(tokens.shape, 1 / vocab)
        draft = Draft.of_parents(tokens, parents, sampled=True, logits=logits, q=q, width=2)
        draft.replacement, draft.sizes = replacement, (1, 2, 4, 4, 4, 4)[: depth + 1]
        v = Verification(draft, z, Sampling(1.0), torch.rand(tokens.shape, generator=draw))
        assert v.p.shape == v.q.shape  # both are computed once for all rules
        with VocabularyRows(vocab) as touched:
            Traversal().decide(v)
        rows.append(touched.count / sum(shape.inner))
    assert rows[0] > 0 and rows[1] <= 1.5 * rows[0]


VOCAB, NEW, ROWS, DRAWS = 5, 3, 1000, 4_000
PROMPT = [1, 2, 3, 1, 2, 4, 1, 2]  # prompt lookup finds something after it
SAMPLING = Sampling(0.8, top_p=0.97)

SMALL = {"total": 5, "depth": 1, "top_k": 2}
CASES = {
    "model": ("model", {}, "lossless"),
    "model, stops early": ("model", {"stop_below": 0.3}, "lossless"),
    "model, distinct siblings": ("model", {"branching": [2, 2]}, "lossless"),
    "model, independent siblings": ("model", {"branching": [2], "replacement": True}, "lossless"),
    "early exit": ("early_exit", {"exit_layer": 1}, "lossless"),
    "suffix": ("suffix", {}, "lossless"),
    "lookahead": ("lookahead", {"level": 3, "window": 2, "pool_from_prompt": True}, "lossless"),
    "tree of siblings": (TreeDrafter(choose=hashed(VOCAB)), {}, "lossless"),
    "eagle3, a vocabulary of three": ("eagle3", SMALL, "lossless"),
    "medusa": ("medusa", {"tree": "small_10"}, "lossless"),
    "block": ("model", {}, "block"),
    "traversal": ("model", {"branching": [2, 2]}, "traversal"),
}


def soft(layers: int, seed: int) -> LanguageModel:
    """With flat logits, so that every sequence has a fair share of the draws."""
    model = copy.deepcopy(language_model(layers=layers, seed=seed, vocab=VOCAB))
    with torch.no_grad():
        model.model.lm_head.weight.mul_(0.15)
    return model


Exact = tuple[LanguageModel, LanguageModel, list[tuple[int, ...]], np.ndarray]


@pytest.fixture(scope="module")
def exact() -> Exact:
    """Target, draft model, and each sequence of three tokens with its probability from the target
    alone."""
    target = soft(2, 1)
    paths = list(product(range(VOCAB), repeat=NEW))
    ids = torch.tensor([PROMPT + list(path) for path in paths])
    with torch.inference_mode():
        logits = target.model(ids, use_cache=False).logits[:, len(PROMPT) - 1 : -1]
    p = SAMPLING.probs(logits).double().gather(-1, ids[:, len(PROMPT) :, None])
    return target, soft(1, 2), paths, p[..., 0].prod(-1).numpy()


def p_value(exact: Exact, drafter, drafter_options, rule, **rule_options) -> float:
    """Chi-square p-value of DRAWS generations against the exact law (sequences of tiny expectation
    pooled)."""
    (target, draft, paths, probability), model = exact, None
    if isinstance(drafter, str):
        name, drafter = drafter, registry.drafter(drafter)(**drafter_options)
        model = draft if drafter.model_role == "draft" else model_for(name, target)
    method = build_method(target, model, drafter, registry.rule(rule)(**rule_options), SAMPLING, 2)
    seen = Counter()
    for start in range(0, DRAWS, ROWS):
        requests = [Request(PROMPT, f"0/law/{start + i}") for i in range(ROWS)]
        answers = generate(method, requests, Limits(NEW, frozenset()))
        seen.update(tuple(answer.output_ids) for answer in answers)
    counts = np.array([seen[path] for path in paths])
    expected = probability / probability.sum() * DRAWS
    assert counts[probability == 0].sum() == 0, "a token outside top-p was emitted"
    common = expected >= 10
    observed, wanted = (
        np.append(numbers[common], numbers[~common].sum()) for numbers in (counts, expected)
    )
    return chisquare(observed, wanted).pvalue


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_law_is_the_targets(exact: Exact, case: str) -> None:
    assert p_value(exact, *CASES[case]) > 1e-4


@pytest.mark.slow
def test_a_bias_is_detected(exact: Exact) -> None:
    assert p_value(exact, "eagle3", SMALL, "lossless", q_mode="draft") < 1e-8
