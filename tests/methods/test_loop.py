"""The decode loop with every drafter: greedy decoding is transformers', an answer depends on its
prompt alone, counts and likelihoods add up, and an end is an end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from methods import registry
from methods.batch import Generation
from methods.decode import Limits, Request, generate
from methods.likelihood import generate_with_nll
from methods.method import Method
from methods.pruning import Pruning
from methods.sampling import Sampling
from tests.helpers import tiny_heads
from tests.helpers.tiny_models import (
    ARCHITECTURES,
    VOCAB,
    greedy_answers,
    language_model,
    prompts,
)

GREEDY, WARM, NEW = Sampling(0.0), Sampling(1.0), 24
LIMITS = Limits(NEW, frozenset())
ROWS = prompts(6)
EOS = frozenset(range(0, VOCAB, 16))
"""So many tokens end an answer that rows end early, and at different times."""
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in registry.names("drafters")},
    "model, stops early": ("model", {"stop_below": 0.25}),
    "model, distinct siblings": ("model", {"branching": [3, 2]}),
    "model, independent siblings": ("model", {"branching": [2], "replacement": True}),
    "eagle3, chain": ("eagle3", {"tree": "chain"}),
    "eagle3, sampled": ("eagle3", {"tree": "sampled", "branching": [2, 2]}),
    "eagle2, chain": ("eagle2", {"tree": "chain"}),
}
OTHERS = ("none", "model", "model, distinct siblings", "eagle3")
"""Cases of every architecture: chains, trees, and hidden states that a head reads."""
LATE: list[tuple[str, Sampling, dict[str, Any]]] = [
    ("near_top", GREEDY, {"after_tokens": 6, "threshold": 1e-6}),
    ("secure_sd", WARM, {"tokens": 6}),
    ("ensemble", WARM, {"w": 0.0, "w_first": 1.0, "tokens": 6, "schedule": "step"}),
]
"""Rules that relax behind the sixth token of an answer."""


def method_of(
    case: str,
    kind: str = "llama",
    rule: str = "lossless",
    sampling: Sampling = GREEDY,
    pruning: Pruning | None = None,
    **options: Any,
) -> Method:
    target, (name, given) = language_model(kind, layers=3), CASES[case]
    decides = registry.rule(rule)(**options)
    return tiny_heads.method_of(name, decides, sampling, target=target, pruning=pruning, **given)


def run(
    method: Method, rows: list[list[int]], batch: int, limits: Limits = LIMITS
) -> list[Generation]:
    requests, out = [Request(ids, f"0/loop/{i}") for i, ids in enumerate(rows)], []
    for at in range(0, len(requests), batch):
        out += generate(method, requests[at : at + batch], limits)
    return out


def assert_greedy(method: Method, kind: str, right: bool) -> None:
    """Five rows together and one alone."""
    found = run(method, ROWS, 5)
    assert [g.output_ids for g in found] == greedy_answers(kind, 3, NEW, tuple(map(tuple, ROWS)))
    accepted = [a for g in found for a in g.accepted]
    assert not right or min(accepted) < 3 <= max(accepted)


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        *((case, "llama") for case in CASES),
        *((case, kind) for case in OTHERS for kind in ARCHITECTURES if kind != "llama"),
        ("medusa", "gemma2"),
    ],
)
def test_greedy_equals_transformers(case: str, kind: str) -> None:
    """An untrained head is right by chance."""
    assert_greedy(method_of(case, kind), kind, right=case.startswith("model"))


def result(g: Generation) -> dict[str, Any]:
    """All but clocks and what is counted for prices."""
    names = "output_ids committed accepted relaxed greedier drafted pruned flags finish"
    same = {name: getattr(g, name) for name in names.split()}
    return same | {"nll": pytest.approx(g.nll, rel=1e-4)}


def assert_own(method: Method) -> list[Generation]:
    """Alone, and in another order in a batch that its rows leave as they end: the same tokens,
    counts and likelihoods; and these add up. Returns the generations."""
    asked = tiny_heads.requests(9, seed=5)
    alone = [generate_with_nll(method, [request], Limits(NEW, EOS))[0] for request in asked]
    together = generate_with_nll(method, asked[::-1], Limits(NEW, EOS, shrink=True))[::-1]
    assert [result(g) for g in together] == [result(g) for g in alone]
    assert len({len(g.output_ids) for g in alone}) > 1, "they end at different times"
    for request, g in zip(asked, alone, strict=True):
        assert len(g.output_ids) == 1 + sum(g.committed) and len(g.committed) == len(g.accepted)
        assert all(0 <= a <= c <= a + 1 for a, c in zip(g.accepted, g.committed, strict=True))
        assert not EOS & set(g.output_ids[:-1]) and (g.output_ids[-1] in EOS) == (g.finish == "eos")
        with torch.inference_mode():
            ids = torch.tensor([[*request.input_ids, *g.output_ids]])
            logits = method.target.model(ids).logits[0, len(request.input_ids) - 1 : -1]
        nats = cross_entropy(logits, torch.tensor(g.output_ids), reduction="sum")
        assert g.nll == pytest.approx(float(nats), abs=1e-3)
    return alone


@pytest.mark.parametrize("case", CASES)
def test_an_answer_depends_on_its_prompt_alone(case: str) -> None:
    assert_own(method_of(case, sampling=WARM))


@pytest.mark.parametrize(
    ("rule", "sampling", "options"),
    [
        ("traversal", Sampling(1.0, top_k=2), {}),
        ("mars", WARM, {}),
        ("fsd", WARM, {}),
        ("dropmatch", WARM, {}),
        ("fly", GREEDY, {"window": 2}),
        ("asd", GREEDY, {}),
        ("typical", Sampling(0.8), {}),
        ("relaxed_topk", GREEDY, {"delta": 0.9, "span": "thinking", "begin": 5, "end": 63}),
        *LATE,
    ],
)
def test_with_every_kind_of_rule(rule: str, sampling: Sampling, options: dict[str, Any]) -> None:
    case = {"traversal": "model, distinct siblings", "typical": "medusa"}.get(rule, "model")
    found = assert_own(method_of(case, rule=rule, sampling=sampling, **options))
    if (rule, sampling, options) in LATE:
        strict = assert_own(method_of(case, sampling=sampling))
        assert [g.output_ids[:6] for g in found] == [g.output_ids[:6] for g in strict]
    assert any(g.committed for g in found) and (
        rule == "traversal" or sum(g.relaxed for g in found) > 0
    )


def test_with_pruned_trees() -> None:
    for score in ("entropy", "accum_prob"):
        pruning = Pruning(score=score, epsilon=0.3)
        assert_greedy(method_of("eagle3", pruning=pruning), "llama", right=False)
        pruned = assert_own(method_of("eagle3", sampling=WARM, pruning=pruning))
        assert 0 < sum(g.pruned for g in pruned) < sum(g.drafted for g in pruned)


def test_a_draft_that_stops_early_wins_less_and_drafts_less() -> None:
    tau = {}
    for stop in (0.0, 1e-9, 0.25, 1.0):
        found = run(tiny_heads.method_of("model", stop_below=stop), ROWS, 6)
        tau[stop] = sum(sum(g.committed) for g in found) / sum(len(g.committed) for g in found)
    assert tau[0.0] == tau[1e-9] > tau[0.25] > tau[1.0] == 1
    with pytest.raises(ValueError, match="stop_below applies only to chains"):
        registry.drafter("model")(stop_below=0.5, branching=[2])
