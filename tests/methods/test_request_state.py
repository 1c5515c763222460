"""A rule's state belongs to one request: batch, order and neighbours do not matter, and nothing survives a request."""

from __future__ import annotations

import pytest

from methods.batch import Generation
from methods.decode import Limits, Request, generate
from methods.drafters.model import ModelDrafter
from methods.method import build_method
from methods.rules.asd import Asd
from methods.rules.base import Rule
from methods.rules.ensemble import Ensemble
from methods.rules.lossless import Lossless
from methods.rules.near_top import NearTop
from methods.rules.relaxed_topk import RelaxedTopk
from methods.rules.secure_sd import SecureSd
from methods.sampling import Sampling
from tests.helpers.tiny_models import language_model, noisy_copy, prompts

PLACES = (NearTop(after_tokens=6, threshold=1e-6), SecureSd(tokens=6),
          Ensemble(w=0.0, w_first=1.0, tokens=6, schedule="step"))
"""Rules that relax behind the sixth token of an answer."""
RULES = (Asd(budget=2.0, regret_per_value=2.0), RelaxedTopk(delta=0.9, span="thinking", begin=5, end=9), *PLACES)
REQUESTS = [Request([5, *ids] if i % 2 else ids, f"0/state/{i}") for i, ids in enumerate(prompts(6, seed=4))]


def decode(rule: Rule, requests: list[Request], batch: int) -> dict[str, Generation]:
    sampling = Sampling(0.0) if isinstance(rule, Asd | RelaxedTopk | NearTop) else Sampling(1.0)
    target = language_model("llama", layers=3)
    method = build_method(target, noisy_copy(target), ModelDrafter(), rule, sampling, 5)
    found: dict[str, Generation] = {}
    for at in range(0, len(requests), batch):
        part = requests[at:at + batch]
        generations = generate(method, part, Limits(30, frozenset()))
        found |= {request.key: g for request, g in zip(part, generations, strict=True)}
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_state_is_the_requests_own(rule: Rule) -> None:
    alone = decode(rule, REQUESTS, 1)
    other = decode(rule, [REQUESTS[i] for i in (4, 2, 0, 5, 3, 1)], 4)
    assert {key: g.output_ids for key, g in other.items()} == {key: g.output_ids for key, g in alone.items()}
    assert sum(g.relaxed for g in alone.values()) > 0
    if rule in PLACES:
        strict = NearTop(top_n=1) if isinstance(rule, NearTop) else Lossless()
        for key, g in decode(strict, REQUESTS, 6).items():
            assert g.output_ids[:6] == alone[key].output_ids[:6]


def test_a_budget_is_spent_once() -> None:
    """A larger allowance per block changes nothing once the request's budget is gone."""
    relaxed = [sum(g.relaxed for g in decode(Asd(budget=budget, regret_per_value=9.0, max_relaxed=5), REQUESTS,
                                             6).values()) for budget in (0.0, 1.0, 1e9)]
    assert relaxed[0] == 0 < relaxed[1] < relaxed[2]
