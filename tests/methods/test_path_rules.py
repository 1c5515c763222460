"""Rules that look along a chain at the ends of their options, and their state over a whole decode."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.batch import Generation
from methods.decode import Limits, Request, generate
from methods.drafters.model import ModelDrafter
from methods.engine.language_model import LanguageModel
from methods.method import build_method
from methods.rules.asd import Asd
from methods.rules.base import DraftCapabilities, Rule
from methods.rules.bild import Bild
from methods.rules.block import Block
from methods.rules.fly import Fly
from methods.rules.greedy import Greedy
from methods.rules.lossless import Lossless
from methods.rules.relaxed_topk import RelaxedTopk
from methods.rules.topp_window import ToppWindow
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.path_pairs import spent, with_state
from tests.helpers.rule_cases import random_case
from tests.helpers.tiny_models import language_model, prompts

COLD, WARM = Sampling(0.0), Sampling(1.0)
CPU = torch.device("cpu")


@st.composite
def chains(draw: st.DrawFn, temperature: float = 0.0, sampled: bool = False) -> Verification:
    return random_case(draw(st.integers(0, 10_000)), Sampling(temperature), sampled=sampled, tree=False, rows=4,
                       nodes=draw(st.sampled_from([2, 5, 9])), shift=draw(st.sampled_from([-20.0, 0.0])))


def length(rule: Rule, v: Verification) -> torch.Tensor:
    return walk(v, rule.decide(v)).length


def assert_same(one: Rule, other: Rule, v: Verification) -> None:
    path = walk(v, one.decide(v))
    assert torch.equal(path.length, length(other, v))
    emitted = [rule.emit(v, path.last).float() for rule in (one, other)]
    torch.testing.assert_close(*(weights / weights.sum(-1, keepdim=True) for weights in emitted))


STRICT = [Fly(entropy=1.2), Fly(window=9, entropy=0.0), Asd(budget=0.0), Asd(regret_per_value=0.0), Asd(max_relaxed=0),
          Asd(variant="dspark", budget=0.0), RelaxedTopk(top_n=1), RelaxedTopk(delta=0.0), ToppWindow(),
          ToppWindow(variant="released"), Block(), Block(variant="ascend")]


@settings(max_examples=25, deadline=None)
@given(chains())
def test_strict_settings_are_greedy_matching(v: Verification) -> None:
    fresh = with_state(lambda v: {"spent": torch.zeros(len(v.u), dtype=torch.float64)})(v)
    for rule in STRICT:
        assert_same(rule, Greedy(), fresh)


@settings(max_examples=25, deadline=None)
@given(chains(temperature=0.8, sampled=True))
def test_relaxed_topk_ignores_the_sampling(v: Verification) -> None:
    cold = Verification(v.draft, v.logits, COLD, v.u)
    for rule in (RelaxedTopk(), RelaxedTopk(top_n=3, delta=0.2)):
        assert torch.equal(length(rule, v), length(rule, cold))
        assert torch.equal(rule.emit(v, v.drafted), Greedy().emit(cold, v.drafted))


@settings(max_examples=25, deadline=None)
@given(chains())
def test_more_is_kept_with_looser_settings(v: Verification) -> None:
    v = with_state(spent)(v)
    for strict, loose in ((Asd(budget=3.0), Asd(budget=9.0)), (Asd(max_relaxed=1), Asd(max_relaxed=4)),
                          (Asd(regret_per_value=0.1), Asd(regret_per_value=2.0)), (Fly(window=3), Fly(no_window=True)),
                          (Fly(window=2, entropy=0.6), Fly(window=2, entropy=0.1)),
                          (RelaxedTopk(delta=0.1), RelaxedTopk(delta=0.5)), (RelaxedTopk(top_n=2), RelaxedTopk())):
        assert (length(strict, v) <= length(loose, v)).all()


@settings(max_examples=50, deadline=None)
@given(chains(), st.sampled_from([0.0, 0.005, 0.01, 0.25, 0.5, 1.0]), st.sampled_from([0.0, 0.25, 0.5, 4.0]))
def test_a_view_decides_as_the_rule_does_at_every_threshold(v: Verification, traced: float, other: float) -> None:
    v, asked = with_state(spent)(v), v.draft.valid & (v.draft.depth > 0)
    for at in (lambda value: Fly(window=2, entropy=value), lambda value: Fly(no_window=True, entropy=value),
               lambda value: Asd(regret_per_value=value), lambda value: Asd(variant="dspark", regret_per_value=value)):
        view = replace(at(traced).threshold_view(v), value=other)
        replayed = torch.where(view.holds, view.inside, view.outside)
        assert torch.equal(replayed[asked], at(other).decide(v).accept[asked])


@settings(max_examples=25, deadline=None)
@given(chains(temperature=1.0, sampled=True))
def test_block_of_one_token_is_the_lossless_test(v: Verification) -> None:
    draft = v.draft
    one = Draft.of_chain(draft.tokens[:, :2], sampled=True, logits=draft.logits[:, :2], q=draft.q[:, :2])
    assert_same(Block(), Lossless(), Verification(one, v.logits[:, :2], WARM, v.u[:, :2]))


def test_an_early_failure_does_not_end_the_block() -> None:
    """u belongs to a prefix: the second test passes whatever the first one did."""
    z = torch.zeros(1, 3, 4)
    draft = Draft.of_chain(torch.tensor([[0, 1, 2]]), sampled=True, logits=z, q=torch.tensor([[1.0, 0.25, 0.25]]))
    target = torch.tensor([[[2.0, 0.5, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0], [0.0] * 4]])
    v = Verification(draft, target, WARM, torch.tensor([[0.0, 0.999, 0.5]]))
    assert length(Lossless(), v).tolist() == [0] and length(Block(), v).tolist() == [2]


def test_padding_is_never_kept_nor_seen() -> None:
    for seed in range(4):
        v = with_state(spent)(random_case(seed, WARM, sampled=True, tree=False))
        draft, valid = v.draft, v.draft.valid
        junk = Draft.of_chain(torch.where(valid, draft.tokens, v.at_parent(v.argmax)), valid=valid, sampled=True,
                              logits=draft.logits, q=torch.where(valid, draft.q, torch.nan))
        noisy = Verification(junk, torch.where(valid[..., None], v.logits, torch.nan), WARM, v.u, state=v.state)
        for rule in (Fly(window=2), Asd(), Bild(rollback=2.0), RelaxedTopk(), ToppWindow(window=1), Block(),
                     Block(variant="ascend")):
            expected, found = walk(v, rule.decide(v)), walk(noisy, rule.decide(noisy))
            assert torch.equal(expected.kept, found.kept) and not (found.kept & ~valid).any()
            torch.testing.assert_close(rule.emit(v, expected.last), rule.emit(noisy, found.last))
            before, after = (rule.next_state(case, path, v.argmax[:, 0]) for case, path in ((v, expected),
                                                                                            (noisy, found)))
            for name, value in before.items():
                torch.testing.assert_close(value, after[name])


def test_thinking_spans() -> None:
    rule = RelaxedTopk(span="thinking", begin=7, end=8)
    rows = [[1, 7, 2, 3], [1, 7, 8, 3], [1, 2, 3, 7], [1, 7, 2, 8], [1, 2, 8, 3]]
    assert rule.start(rows, CPU)["thinking"].tolist() == [True, True, True, False, False]
    draft = Draft.of_chain(torch.tensor([[0, 7, 8], [0, 8, 7], [0, 7, 8], [0, 1, 2]]))
    v = Verification(draft, torch.zeros(4, 3, 9), WARM, torch.zeros(4, 3),
                     state={"thinking": torch.tensor([False, True, False, True])})
    path = walk(v, Lossless().decide(v))  # u = 0 keeps everything
    after = [rule.next_state(v, path, torch.tensor([token] * 4))["thinking"].tolist() for token in (3, 7, 8)]
    assert after == [[False, True, False, True], [True] * 4, [False] * 4]
    v.draft.valid[:, 1:] = False
    nothing = walk(v, Lossless().decide(v))
    assert rule.next_state(v, nothing, torch.full((4,), 3))["thinking"].tolist() == [False, True, False, True]


def noisy_pair() -> tuple[LanguageModel, LanguageModel]:
    """A target, and a draft model that disagrees with it now and then."""
    target = language_model("llama", layers=3)
    draft = copy.deepcopy(target)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in draft.model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return target, draft


def decode(rule: Rule, rows: list[list[int]], order: list[int], batch: int) -> dict[int, Generation]:
    target, draft = noisy_pair()
    method = build_method(target, draft, ModelDrafter(), rule, COLD, 5)
    found: dict[int, Generation] = {}
    for at in range(0, len(order), batch):
        part = order[at:at + batch]
        requests = [Request(rows[i], f"0/paths/{i}") for i in part]
        found |= dict(zip(part, generate(method, requests, Limits(40, frozenset())), strict=True))
    return found


@pytest.mark.parametrize("rule", [Asd(budget=2.0, regret_per_value=2.0), Fly(window=2, entropy=0.0),
                                  RelaxedTopk(delta=0.9, span="thinking", begin=5, end=9)], ids=repr)
def test_state_over_a_decode_depends_on_the_request_alone(rule: Rule) -> None:
    rows = [[5, *ids] if i % 2 else ids for i, ids in enumerate(prompts(6, seed=4))]
    alone = decode(rule, rows, list(range(6)), 1)
    for order, batch in ((list(range(6)), 6), ([4, 2, 0, 5, 3, 1], 4)):
        other = decode(rule, rows, order, batch)
        assert {i: g.output_ids for i, g in other.items()} == {i: g.output_ids for i, g in alone.items()}
    assert sum(g.relaxed for g in alone.values()) > 0


def test_a_budget_is_spent_once() -> None:
    """A larger allowance per block changes nothing once the request's budget is gone."""
    rows = prompts(6, seed=4)
    relaxed = [sum(g.relaxed for g in decode(Asd(budget=budget, regret_per_value=9.0, max_relaxed=5), rows,
                                             list(range(6)), 6).values()) for budget in (0.0, 1.0, 1e9)]
    assert relaxed[0] == 0 < relaxed[1] < relaxed[2]


MODEL = DraftCapabilities("model", has_q=True, sampled=True)
TREE = DraftCapabilities("eagle3", has_q=True, sampled=False, chain=False)


@pytest.mark.parametrize("rule,candidates,sampling,message", [
    (Fly(), MODEL, WARM, "temperature 0 only"), (Asd(), MODEL, WARM, "temperature 0 only"),
    (Bild(), MODEL, WARM, "temperature 0 only"), (Fly(), TREE, COLD, "is defined for chains"),
    (ToppWindow(), TREE, WARM, "is defined for chains"), (Block(), TREE, WARM, "is defined for chains"),
    (RelaxedTopk(), TREE, WARM, "is defined for chains"),
    (RelaxedTopk(span="thinking"), MODEL, COLD, "needs two tokens"),
])
def test_refusals(rule: Rule, candidates: DraftCapabilities, sampling: Sampling, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        rule.check(candidates, sampling)
    assert "\n" not in str(refusal.value)


def test_a_thinking_token_outside_the_vocabulary_is_refused() -> None:
    target, _ = noisy_pair()
    with pytest.raises(ValueError, match="vocabulary has 64 entries"):
        RelaxedTopk(span="thinking", begin=5, end=64).bind(target, None)
