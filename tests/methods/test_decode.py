"""The decode loop against `transformers.generate`, and its invariants, for every drafter."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch

from methods import registry
from methods.decode import Limits, Request, TooLong, generate
from methods.method import build_method
from methods.sampling import Sampling
from tests.helpers.tiny_heads import random_head, random_medusa, small
from tests.helpers.tiny_models import ARCHITECTURES, language_model, prompts

GREEDY = Sampling(0.0)
NEW = 24
DRAFTERS = registry.names("drafters")


def method_of(kind="llama", drafter="none", rule="greedy", sampling=GREEDY, length=4, **options):
    """A method whose draft model is a noisy copy of the target, so that some drafts come true and some do not."""
    target = language_model(kind, layers=3)
    model = model_for(drafter, kind)
    return build_method(target, model, small(drafter), registry.rule(rule)(**options), sampling, length)


def model_for(drafter, kind):
    """What the drafter runs: a noisy copy of the target, an untrained head of it, or nothing."""
    match registry.drafter(drafter).model_role:
        case None:
            return None
        case "draft":
            return noisy_copy(kind)
        case "medusa":
            return random_medusa(language_model(kind, layers=3))
    return random_head(drafter, language_model(kind, layers=3))


def noisy_copy(kind):
    draft = copy.deepcopy(language_model(kind, layers=3))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in draft.model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return draft


def run(method, token_rows, batch, new=NEW, eos=frozenset()):
    requests = [Request(ids, f"0/test/{index}") for index, ids in enumerate(token_rows)]
    out = []
    for at in range(0, len(requests), batch):
        out += generate(method, requests[at:at + batch], Limits(new, eos))
    return out


@cache
def references(kind="llama"):
    """What transformers generates from the target of `method_of`, for each of the six prompts."""
    twin = copy.deepcopy(language_model(kind, layers=3).model)
    twin.set_attn_implementation("eager")
    rows = []
    for ids in prompts(6):
        out = twin.generate(torch.tensor([ids]), max_new_tokens=NEW, do_sample=False, use_cache=True,
                            attention_mask=torch.ones(1, len(ids), dtype=torch.long))
        rows.append(out[0, len(ids):].tolist())
    return rows


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_equals_transformers(kind, drafter):
    token_rows = prompts(6)
    method = method_of(kind, drafter)
    for batch in (1, 5):
        got = [g.output_ids for g in run(method, token_rows, batch)]
        assert got == references(kind)


def test_drafts_come_true_sometimes():
    """The equality above says little if nothing or everything is accepted."""
    generations = run(method_of(drafter="model"), prompts(6), 1)
    accepted = [a for g in generations for a in g.accepted]
    assert 0 < sum(accepted) < 4 * len(accepted) and max(accepted) == 4 and min(accepted) == 0


@pytest.mark.parametrize("drafter", ["eagle3", "eagle2", "eagle"])
def test_untrained_heads_are_right_by_chance(drafter):
    accepted = [a for g in run(method_of(drafter=drafter), prompts(6), 5) for a in g.accepted]
    assert max(accepted) >= 1 and min(accepted) == 0


@pytest.mark.parametrize("drafter", ["eagle3", "eagle2", "hass"])
def test_a_chain_is_the_tree_with_one_beam(drafter):
    """Greedy equality, at most draft.length accepted, and a cache that needs no compaction."""
    method, chain = method_of(drafter=drafter), registry.drafter(drafter)(tree="chain")
    chained = build_method(method.target, method.model, chain, method.rule, GREEDY, 3)
    for batch in (1, 5):
        found = run(chained, prompts(6), batch)
        assert [g.output_ids for g in found] == [g.output_ids for g in run(method, prompts(6), 1)]
    proposer = chain.start(method.target, method.model, chained.draft, [[1, 2, 3]], 40)
    proposer.on_features(torch.randn(1, 3, proposer.head.model.fc.in_features if drafter == "eagle3" else 32),
                     [range(3)])
    draft = proposer.propose([[1, 2, 3, 4]], torch.empty(1, 0))
    assert draft.chain and draft.nodes == 4 and draft.tokens[0, 0] == 4


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_counts_add_up(drafter, temperature):
    method = method_of(drafter=drafter, rule="lossless", sampling=Sampling(temperature, top_k=20, top_p=0.95))
    for g in run(method, prompts(4), 3, new=17):
        assert len(g.output_ids) == 17 == 1 + sum(g.committed) and g.finish == "length"
        assert len(g.committed) == len(g.accepted)
        assert all(0 <= a <= c <= a + 1 for a, c in zip(g.accepted, g.committed, strict=True))
        assert max(g.committed) <= 5


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_results_do_not_depend_on_the_batch(drafter, temperature):
    token_rows = prompts(7, seed=3)
    method = method_of(drafter=drafter, rule="lossless", sampling=Sampling(temperature))
    alone = [g.output_ids for g in run(method, token_rows, 1)]
    assert [g.output_ids for g in run(method, token_rows, 5)] == alone
    assert [g.output_ids for g in run(method, token_rows, 7)] == alone


STOPS = {"model": {}, "early_exit": {"exit_layer": 2}, "eagle3": {"tree": "chain"}, "eagle2": {"tree": "sampled"}}


@pytest.mark.parametrize("drafter", STOPS)
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1.0)], ids=["T = 0", "T = 1"])
def test_a_draft_that_stops_early_has_the_same_answers_in_any_batch(sampling, drafter):
    """Rows that stop at different tokens share a batch; at T = 0 the answers are those of drafts that never stop."""
    token_rows, tau = prompts(6), {}
    for stop in (0.0, 1e-9, 0.25, 1.0):
        options = STOPS[drafter] | {"stop_below": stop}
        method = build_method(language_model("llama", layers=3), model_for(drafter, "llama"),
                              registry.drafter(drafter)(**options), registry.rule("lossless")(), sampling, 4)
        one, five = (run(method, token_rows, batch) for batch in (1, 5))
        assert [(g.output_ids, g.committed) for g in one] == [(g.output_ids, g.committed) for g in five]
        tau[stop] = sum(len(g.output_ids) - 1 for g in one) / sum(len(g.committed) for g in one)
        if sampling.greedy:
            assert [g.output_ids for g in one] == references()
    assert tau[0.0] >= tau[0.25] >= tau[1.0] == 1
    if sampling.greedy or drafter == "model":  # a head's sampled chain that never stops draws as it did
        assert tau[1e-9] == tau[0.0]
    assert drafter != "model" or tau[0.0] > tau[0.25] > 1


def test_stopping_needs_a_chain():
    for drafter, options in (("model", {"branching": [2]}), ("eagle3", {}), ("eagle2", {"tree": "dynamic"})):
        with pytest.raises(ValueError, match="stop_below applies only to chains"):
            registry.drafter(drafter)(stop_below=0.5, **options)


def test_streams_belong_to_the_prompt():
    method = method_of(drafter="model", rule="lossless", sampling=Sampling(1.0))
    ids = prompts(1)[0]
    limits = Limits(NEW, frozenset())
    first, again, other = (generate(method, [Request(ids, key)], limits)[0].output_ids for key in "aab")
    assert first == again != other


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_stops_at_the_end_token(drafter):
    method = method_of(drafter=drafter)
    ids = prompts(1)[0]
    full = run(method, [ids], 1)[0].output_ids
    end = full[9]
    got = run(method, [ids], 1, eos=frozenset({end}))[0]
    assert got.output_ids == full[:full.index(end) + 1] and got.finish == "eos"
    assert sum(got.committed) + 1 == len(got.output_ids)


@pytest.mark.parametrize("drafter", ["none", "model"])
def test_what_does_not_fit_says_what_to_shorten(drafter):
    method, [ids] = method_of(drafter=drafter), prompts(1)
    room = 512 - len(ids)
    with pytest.raises(TooLong, match=f"exceed its 512 positions; lower decoding.max_new_tokens to {room} or less"):
        run(method, [ids], 1, new=room + 1)
    with pytest.raises(TooLong, match="no room for an answer in its 512 positions; shorten the prompt") as refused:
        run(method, [[5] * 512], 1, new=1)
    assert "max_new_tokens" not in str(refused.value), "no limit on the answer helps here"
