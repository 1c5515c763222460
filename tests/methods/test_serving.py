"""Rules inside an engine's batch decode what the loop decodes, whatever stands beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch

from methods import registry
from methods.batch import Generation
from methods.decode import Limits, Request, count_cycle, emit, generate
from methods.drafters.lookup import PromptLookup, lookup
from methods.method import build_method
from methods.sampling import Sampling
from methods.serving import Rows, Served, ServedSetting, Verifier
from tests.helpers.tiny_models import language_model, prompts

K, NEW = 4, 24
LIMITS = Limits(NEW, frozenset())
RULES = {
    "lossless": {},
    "mars": {"theta": 0.5},
    "typical": {},
    "asd": {},
    "relaxed_topk": {"span": "thinking", "begin": 3, "end": 5},
    "dropmatch": {"variant": "naive"},
}


def rule_of(name: str, **options):
    return registry.rule(name)(**options)


@dataclass
class Running:
    served: Served
    tokens: list[int]
    drafts: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.served.prompt) + NEW


class Engine:
    """A toy of an engine: no cache, requests join and leave at any step, drafts by n-gram
    lookup."""

    def __init__(self, target, verifier):
        self.target, self.verifier, self.running = target, verifier, []

    @torch.inference_mode()
    def step(self) -> None:
        logits, tokens, starts, hidden = [], [], [], []
        for asked in self.running:
            row, count = [*asked.tokens, *asked.drafts], len(asked.drafts) + 1
            out = self.target.forward(
                torch.tensor([row]), self.target.new_cache(1, len(row)), hidden=True
            )
            starts.append(sum(map(len, logits)))
            logits.append(out.logits[0, -count:])
            hidden.append(out.hidden[0, -count:])
            tokens += [-1, *asked.drafts]
        rows = Rows(
            torch.cat(logits),
            torch.tensor(tokens),
            starts,
            [len(asked.drafts) for asked in self.running],
            hidden=torch.cat(hidden),
        )
        emitted = self.verifier.step([asked.served for asked in self.running], rows).tolist()
        for asked, new in zip(self.running, emitted, strict=True):
            asked.tokens += [token for token in new if token >= 0]
            asked.drafts = lookup(asked.tokens, 3, K)
        self.running = [asked for asked in self.running if len(asked.tokens) < asked.end]


def settings(sampling: Sampling) -> dict[str, ServedSetting]:
    target = language_model()
    greedy_only = () if sampling.greedy else ("asd",)
    return {
        name: ServedSetting(rule_of(name, **options).bind(target, None), sampling)
        for name, options in RULES.items()
        if name not in greedy_only
    }


def served_together(
    all_settings: list[ServedSetting], requests: list[Request]
) -> tuple[Verifier, dict[str, list[int]]]:
    """Every request once with each setting, three joining at each step."""
    verifier = Verifier(K, 0, torch.device("cpu"))
    engine, answers = Engine(language_model(), verifier), {}
    waiting = [
        (f"{number} {request.key}", setting, request)
        for request in requests
        for number, setting in enumerate(all_settings)
    ]
    every = []
    while waiting or engine.running:
        for name, setting, request in waiting[:3]:
            asked = verifier.request(request.key, setting, request.input_ids)
            every.append((name, Running(asked, list(request.input_ids))))
            engine.running.append(every[-1][1])
        waiting = waiting[3:]
        engine.step()
    for name, asked in every:
        answers[name] = asked.tokens[len(asked.served.prompt) : asked.end]
    return verifier, answers


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_mixed_batch_gives_the_tokens_of_the_loop(temperature: float) -> None:
    sampling = Sampling(temperature, top_k=20 if temperature else 0)
    chosen = settings(sampling)
    requests = [Request(ids, f"0/serving/{place}") for place, ids in enumerate(prompts(3))]
    _, answers = served_together(list(chosen.values()), requests)
    for number, name in enumerate(chosen):
        method = build_method(
            language_model(), None, PromptLookup(), rule_of(name, **RULES[name]), sampling, K
        )
        for request, expected in zip(requests, generate(method, requests, LIMITS), strict=True):
            assert answers[f"{number} {request.key}"] == expected.output_ids, name


def test_outcomes_are_those_of_the_loop() -> None:
    sampling = Sampling(1.0)
    setting, request = (
        ServedSetting(rule_of("mars", theta=0.5), sampling),
        Request(prompts(1)[0], "0/counts"),
    )
    verifier, answers = served_together([setting], [request])
    method = build_method(language_model(), None, PromptLookup(), setting.rule, sampling, K)
    [expected] = generate(method, [request], LIMITS)
    found = Generation(prompt_tokens=len(request.input_ids))
    emit(found, answers[f"0 {request.key}"][:1], LIMITS, language_model())
    for outcome in verifier.take()[request.key]:
        count_cycle(found, outcome, LIMITS, language_model())
    assert found == replace(expected, prefill_s=0.0, decode_s=0.0, finish=found.finish)
    assert verifier.take() == {}


def test_rows_without_a_rule_and_drawn_drafts() -> None:
    """A row of the engine's own gets 0; a drawn draft is accepted where q is p, whatever u is."""
    verifier, setting = (
        Verifier(2, 2, torch.device("cpu")),
        ServedSetting(rule_of("lossless"), Sampling(0.5)),
    )
    asked = verifier.request("0/drawn", setting, [1, 2])
    logits = torch.randn(1 + 3 + 1, 8, generator=torch.Generator().manual_seed(0))
    first = verifier.step([None, asked], Rows(logits[:2], torch.full((2,), -1), [0, 1], [0, 0]))
    assert first.tolist()[0] == [0]
    q = (logits / 0.5).softmax(-1)
    out = verifier.step(
        [asked, None], Rows(logits, torch.tensor([-1, 5, 6, -1, -1]), [0, 3], [2, 0], q=q)
    )
    assert out[0, :2].tolist() == [5, 6]
    assert out[0, 2] >= 0
    assert out[1].tolist() == [0, -1, -1]


def test_a_token_below_zero_ends_a_draft() -> None:
    verifier, setting = (
        Verifier(2, 0, torch.device("cpu")),
        ServedSetting(rule_of("random", rate=1.0), Sampling(1.0)),
    )
    asked = verifier.request("0/invalid", setting, [1])
    verifier.step([asked], Rows(torch.zeros(1, 8), torch.tensor([-1]), [0], [0]))
    out = verifier.step([asked], Rows(torch.zeros(3, 8), torch.tensor([-1, 4, -1]), [0], [2]))
    assert out[0, 0] == 4
    assert (out[0] >= 0).sum() == 2
