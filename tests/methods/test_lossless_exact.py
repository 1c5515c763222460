"""What a lossless rule emits has the target's distribution: by enumeration of every draft and every
outcome, and by draws of the whole loop."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from methods import registry
from methods.decode import Limits, Request, generate
from methods.distortion import with_u
from methods.method import build_method
from methods.rules import whole
from methods.rules.base import Rule
from methods.rules.lossless import Lossless, Remainder
from methods.rules.verification import Verification
from methods.rules.whole import Block, Traversal, alphas, thresholds
from methods.sampling import Sampling
from tests.helpers.path_reference import drawn_law
from tests.helpers.rule_cases import ends
from tests.helpers.tiny_heads import method_of, model_for, requests
from tests.helpers.tiny_models import language_model
from tests.helpers.toy_trees import Toy, emitted_law, mean_length, total_variation

SETTINGS = [Sampling(1.0), Sampling(0.7, top_k=2)]
CHAIN = ((), 3, True)
TREES = [((2, 2), 2, True), ((2, 2), 2, False), ((1, 2), 2, True)]
"""Branching, depth, and whether siblings are independent draws."""


def apart(
    process: Toy, rule: Rule, v: Verification, mass: Tensor, stops: Tensor, tokens: int
) -> float:
    """Total variation between the law of the process and that of what the rule emits, where its
    drafts end like `stops` [B, N] and the process goes on behind them; of so many tokens."""
    weights = [rule.emit(v, torch.full((len(v.u),), node)) for node in range(v.draft.nodes)]
    law = process.continued(emitted_law(v, mass, stops, weights), tokens)
    return total_variation(law, process.law(tokens))


def ends_of_paths(rule: Block | Traversal, v: Verification) -> Tensor:
    """[B, N] probability that a node is the last kept one, where paths are judged as a whole: it
    passes its test, and none did that is tested before it, children first."""
    if isinstance(rule, Block):
        least = thresholds(v, rule.drawn_law(v.p, v.q))
    else:
        least = alphas(rule._relaxed(v))[1]
    for u in torch.rand((8, *v.u.shape), generator=torch.Generator().manual_seed(0)).double():
        passes = (u < least) & v.draft.valid
        kept = (v.draft.ancestors & passes[..., None]).any(1)
        assert torch.equal(rule.decide(with_u(v, u)).accept[:, 1:], kept[:, 1:])
    parents, stops = v.draft.parents[0].tolist(), torch.zeros_like(v.u)
    least, untested = torch.where(v.draft.valid, least, 0.0), torch.ones_like(stops[:, 0])

    def visit(node: int) -> None:
        nonlocal untested
        for child in (i for i, parent in enumerate(parents) if parent == node):
            visit(child)
        stops[:, node] = untested * (least[:, node] if node else 1.0)
        untested = untested - stops[:, node]

    visit(0)
    return stops


def relaxed(toy: Toy, lam: float) -> Toy:
    """Its target is tilted's law."""
    p, q = (toy.sampling.probs(raw).numpy() for raw in (toy.target, toy.draft))
    laws = np.array([drawn_law(*rows, lam) for rows in zip(p, q, strict=True)])
    return Toy(torch.tensor(laws).log(), toy.draft, Sampling(1.0))


@pytest.mark.parametrize("lam", [None, 2.0, 0.2])
@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize(
    ("kind", "drawn"),
    [(Block, CHAIN), (Traversal, CHAIN), *((Traversal, drawn) for drawn in TREES)],
    ids=str,
)
def test_what_is_emitted_has_its_law(
    kind: type[Block | Traversal],
    drawn: tuple[tuple[int, ...], int, bool],
    sampling: Sampling,
    lam: float | None,
) -> None:
    """The target's, or tilted's for as many tokens as were drafted; and more is kept than token by
    token."""
    toy, depth = Toy.random(0, sampling), drawn[1]
    v, mass = toy.drafts(*drawn)
    assert float(mass.sum()) == pytest.approx(1.0)
    token_by_token = ends(Lossless(), v)
    if lam is None:
        rule, process, tokens = kind(), toy, depth + 1
        assert apart(toy, Lossless(), v, mass, token_by_token, tokens) < 1e-6
    else:
        rule, tokens = kind(towards="tilted", lam=lam), depth
        process = relaxed(toy, lam)
    stops = ends_of_paths(rule, v)
    assert apart(process, rule, v, mass, stops, tokens) < (1e-12 if lam is None else 1e-6)
    gain = mean_length(v, mass, stops) - mean_length(v, mass, token_by_token)
    assert gain > (1e-3 if sampling.top_k == 0 else -1e-6)


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_block_on_chains_that_were_not_drawn(sampling: Sampling) -> None:
    """Each draft by itself."""
    toy = Toy.random(1, sampling)
    v, every = toy.drafts(*CHAIN)
    v.draft.sampled = False
    stops = ends_of_paths(Block(), v)
    for mass in torch.eye(len(every), dtype=torch.float64):
        assert apart(toy, Block(), v, mass, stops, 4) < 1e-12


def test_traversal_works_on_each_context_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Level by level, whatever the depth."""
    contexts = []

    def watched(p: Tensor, *others: Any) -> Remainder:
        contexts.append(p.shape[1])
        return Remainder(p, *others)

    monkeypatch.setattr(whole, "Remainder", watched)
    method = method_of("model", "traversal", branching=[2, 2])
    generate(method, requests(1), Limits(2, frozenset()))
    assert contexts == [1, 2, 4, 4]


VOCAB, NEW, ROWS, DRAWS = 4, 3, 1000, 4_000
SAMPLING = Sampling(3.0, top_p=0.97)
"""So warm that every sequence has a fair share of the draws."""
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "drawn": ("model", {}, "lossless"),
    "drawn, stops early": ("model", {"stop_below": 0.9}, "lossless"),
    "distinct siblings": ("model", {"branching": [2, 2]}, "lossless"),
    "likeliest": ("eagle3", {"total": 5, "depth": 1, "top_k": 2}, "lossless"),
    "traversal": ("model", {"branching": [2, 2]}, "traversal"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_law_of_the_loop_is_the_targets(case: str) -> None:
    """Of all sequences of three tokens."""
    target, prompt = language_model(vocab=VOCAB), [1, 2, 3]
    name, options, rule = CASES[case]
    another = language_model(layers=1, seed=2, vocab=VOCAB)  # disagrees often
    model = another if name == "model" else model_for(name, target)
    drafter, decides = registry.drafter(name)(**options), registry.rule(rule)()
    method = build_method(target, model, drafter, decides, SAMPLING, 2)
    seen = Counter()
    for start in range(0, DRAWS, ROWS):
        asked = [Request(prompt, f"0/law/{start + i}") for i in range(ROWS)]
        answers = generate(method, asked, Limits(NEW, frozenset()))
        seen.update(tuple(answer.output_ids) for answer in answers)
    paths = list(product(range(VOCAB), repeat=NEW))
    ids = torch.tensor([[*prompt, *path] for path in paths])
    with torch.inference_mode():
        p = SAMPLING.probs(target.model(ids).logits[:, len(prompt) - 1 : -1])
    exact = p.double().gather(-1, ids[:, len(prompt) :, None])[..., 0].prod(-1).numpy()
    counts, possible = np.array([seen[path] for path in paths]), exact > 0
    assert not counts[~possible].any()
    expected = exact[possible] / exact.sum() * DRAWS
    assert chisquare(counts[possible], expected).pvalue > 1e-4
