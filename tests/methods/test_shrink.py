"""Rows that have ended leave the batch: no token, count, likelihood or trace changes, whatever drafts and verifies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods import decode, registry
from methods.batch import Generation
from methods.decode import Limits, Request
from methods.engine.cache import SlotCache
from methods.likelihood import generate_with_nll
from methods.method import Method, build_method
from methods.pruning import Pruning
from methods.sampling import Sampling
from methods.trace import traced
from tests.helpers.tiny_heads import small
from tests.helpers.tiny_models import language_model, prompts
from tests.methods.test_decode import DRAFTERS, method_of, model_for

REQUESTS = [Request(ids, f"0/shrink/{index}") for index, ids in enumerate(prompts(9, seed=5))]
EOS = frozenset(range(0, 64, 5))
"""So many tokens end an answer that rows end early, and at different times."""


def both(method: Method, requests: list[Request], limits: Limits,
         monkeypatch: pytest.MonkeyPatch) -> tuple[list[Generation], list[Generation], list[int]]:
    """The generations of a batch that keeps its rows and of one that shrinks, and the sizes that it shrank to."""
    sizes: list[int] = []
    keep = SlotCache.keep

    def watched(cache: SlotCache, places: list[int]) -> None:
        sizes.append(len(places))
        keep(cache, places)

    whole = generate_with_nll(method, requests, limits)
    monkeypatch.setattr(SlotCache, "keep", watched)
    return whole, generate_with_nll(method, requests, replace(limits, shrink=True)), sizes


def result(generation: Generation) -> tuple[object, ...]:
    g = generation
    return (g.output_ids, g.committed, g.accepted, g.relaxed, g.greedier, g.drafted, g.pruned, g.flags, g.finish,
            pytest.approx(g.nll, rel=1e-4))


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_drafter(drafter: str, temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    method = method_of(drafter=drafter, rule="lossless", sampling=Sampling(temperature))
    whole, shrunk, sizes = both(method, REQUESTS, Limits(40, EOS), monkeypatch)
    assert [result(g) for g in shrunk] == [result(g) for g in whole]
    assert len(set(sizes)) >= 3, "it shrank again and again"


@pytest.mark.parametrize("options", [{"branching": [2, 2]}, {"branching": [2], "replacement": True}], ids=repr)
def test_sampled_trees(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    method = method_of(drafter="model", rule="lossless", sampling=Sampling(1.0))
    drafter = registry.drafter("model")(**options)
    method = build_method(method.target, method.model, drafter, method.rule, method.sampling, 3)
    whole, shrunk, _ = both(method, REQUESTS, Limits(30, EOS), monkeypatch)
    assert [result(g) for g in shrunk] == [result(g) for g in whole]


@pytest.mark.parametrize("rule", ["asd", "relaxed_topk", "mars", "fsd", "dropmatch", "fly"])
def test_rules_and_their_states(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = rule in {"asd", "relaxed_topk"}
    method = method_of(drafter="model", rule=rule, sampling=Sampling(0.0 if greedy else 1.0))
    whole, shrunk, _ = both(method, REQUESTS, Limits(40, EOS), monkeypatch)
    assert [result(g) for g in shrunk] == [result(g) for g in whole]
    assert any(g.committed for g in whole)


@pytest.mark.parametrize("drafter", ["eagle3", "medusa"])
def test_pruned_drafts(drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = language_model("llama", layers=3)
    method = build_method(target, model_for(drafter, "llama"), small(drafter), registry.rule("lossless")(),
                          Sampling(1.0), 4, Pruning(epsilon=0.5))
    whole, shrunk, _ = both(method, REQUESTS, Limits(40, EOS), monkeypatch)
    assert [result(g) for g in shrunk] == [result(g) for g in whole]
    assert sum(g.pruned for g in whole) > 0


def test_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    method = method_of(drafter="eagle3", rule="mars", sampling=Sampling(1.0))
    whole, shrunk = (traced(method, REQUESTS, Limits(40, EOS, shrink=shrink)) for shrink in (False, True))
    for one, other in zip(whole, shrunk, strict=True):
        assert result(one.generation) == result(other.generation)
        assert one.columns.keys() == other.columns.keys()
        for name, column in one.columns.items():
            np.testing.assert_allclose(column, other.columns[name], rtol=1e-3, atol=1e-4, err_msg=name)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.integers(0, 3))
@settings(max_examples=15, deadline=None)
def test_rows_that_end_whenever(lengths: list[int], seed: int) -> None:
    """A batch of any size and any ends equals its rows alone: the ends are tokens of a row's own."""
    method = method_of(drafter="model", rule="lossless", sampling=Sampling(1.0))
    requests = [Request(ids, f"{seed}/whenever/{n}") for n, ids in enumerate(prompts(len(lengths), seed=seed))]
    alone = [decode.generate(method, [request], Limits(30, frozenset()))[0] for request in requests]
    eos = frozenset(g.output_ids[length - 1] for g, length in zip(alone, lengths, strict=True))
    together = generate_with_nll(method, requests, Limits(30, eos, shrink=True))
    for one, request in zip(together, requests, strict=True):
        [other] = generate_with_nll(method, [request], Limits(30, eos))
        assert result(one) == result(other)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("drafter", ["none", "model", "eagle3", "lookahead", "medusa", "early_exit", "prompt_lookup"])
def test_likelihood_against_one_plain_forward(kind: str, drafter: str) -> None:
    """Of the stock model on prompt and answer, end and cut cycles included."""
    method = method_of(kind, drafter, rule="lossless", sampling=Sampling(1.0, top_k=20))
    generations = generate_with_nll(method, REQUESTS, Limits(23, EOS, shrink=True))
    for request, generation in zip(REQUESTS, generations, strict=True):
        before, answer = request.input_ids, generation.output_ids
        with torch.inference_mode():
            log_p = method.target.model(torch.tensor([before + answer])).logits[0].double().log_softmax(-1)
        expected = -sum(float(log_p[len(before) - 1 + i, token]) for i, token in enumerate(answer))
        assert generation.nll == pytest.approx(expected, abs=1e-3)
