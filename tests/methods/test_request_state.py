"""A rule's state belongs to one request: batch, order and neighbours do not matter, and nothing survives a request."""

from __future__ import annotations

import pytest
import torch

from methods.decode import Limits, Request, generate
from methods.drafters.eagle2 import Eagle2
from methods.drafters.model import ModelDrafter
from methods.method import build_method, check
from methods.rules.base import Rule
from methods.rules.either import Either
from methods.rules.walk import Decision
from methods.sampling import Sampling
from tests.helpers.tiny_models import language_model, prompts

WARM = Sampling(1.0)


class Allowance(Rule):
    """Accept whatever is drafted until `tokens` of a request's draft tokens were kept; a prompt that begins with an odd
    token has twice as many."""

    chain_only = True
    local = False
    tokens: int = 7

    def start(self, rows, device):
        return {"left": torch.tensor([self.tokens * (1 + row[0] % 2) for row in rows], device=device)}

    def decide(self, v):
        return Decision(v.draft.depth <= v.state["left"][:, None])

    def next_state(self, v, path, token):
        return {"left": v.state["left"] - path.length}


def answers(requests, batch):
    target, draft = language_model("llama", layers=2), language_model("llama", layers=1, seed=3)
    method = build_method(target, draft, ModelDrafter(), Allowance(), WARM, 3)
    found = {}
    for at in range(0, len(requests), batch):
        part = requests[at:at + batch]
        found |= {r.key: g for r, g in zip(part, generate(method, part, Limits(30, frozenset())), strict=True)}
    return found


def test_state_is_the_requests_own() -> None:
    requests = [Request(ids, f"0/state/{i}") for i, ids in enumerate(prompts(6))]
    alone = answers(requests, 1)
    for key, generation in alone.items():
        odd = requests[int(key.rpartition("/")[2])].input_ids[0] % 2
        assert sum(generation.accepted) == 7 * (1 + odd)
    assert {sum(generation.accepted) for generation in alone.values()} == {7, 14}
    for other in (answers(requests, 4), answers(requests[::-1], 4), answers(requests, 1)):
        assert {key: g.output_ids for key, g in other.items()} == {key: g.output_ids for key, g in alone.items()}


def test_trees_are_refused_where_a_rule_is_defined_for_chains() -> None:
    check(Eagle2(tree="chain"), "eagle2", Allowance(), WARM)
    check(ModelDrafter(), "model", Allowance(), WARM)
    with pytest.raises(ValueError, match=r"is defined for chains, and drafter=eagle2 drafts trees") as refusal:
        check(Eagle2(), "eagle2", Allowance(), WARM)
    assert "\n" not in str(refusal.value)


def test_rules_that_look_along_the_path_are_not_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("methods.registry.rule", lambda name: Allowance)
    with pytest.raises(ValueError, match="cannot be combined"):
        Either(first={"name": "greedy"}, second={"name": "greedy"})
