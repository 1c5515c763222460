"""Rules inside an engine's batch decode what the loop decodes, whatever stands beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

import pytest
import torch

from methods import registry
from methods.batch import Generation
from methods.decode import Limits, Request, count_cycle, emit, generate
from methods.drafters.lookup import PromptLookup, lookup
from methods.method import build_method
from methods.sampling import Sampling
from methods.serving import Rows, Served, ServedSetting, Verifier
from tests.helpers.tiny_heads import requests
from tests.helpers.tiny_models import language_model

K, NEW, CPU = 4, 24, torch.device("cpu")
LIMITS = Limits(NEW, frozenset())
RULES = {
    "lossless": {},
    "mars": {"theta": 0.5},
    "typical": {},
    "asd": {},
    "relaxed_topk": {"span": "thinking", "begin": 3, "end": 5},
    "dropmatch": {"variant": "naive"},
}


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

    def __init__(self, verifier: Verifier):
        self.target, self.verifier = language_model(), verifier
        self.running: list[Running] = []

    @torch.inference_mode()
    def step(self) -> None:
        logits, tokens, starts, hidden = [], [], [], []
        for asked in self.running:
            row, read = [*asked.tokens, *asked.drafts], len(asked.drafts) + 1
            out = self.target.forward(
                torch.tensor([row]), self.target.new_cache(1, len(row)), hidden=True
            )
            starts.append(len(tokens))
            logits.append(out.logits[0, -read:])
            hidden.append(out.hidden[0, -read:])
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


def served_together(
    verifier: Verifier, settings: list[ServedSetting], requests: list[Request]
) -> list[list[int]]:
    """The answer to every request by each setting, three joining at each step."""
    engine = Engine(verifier)
    every = [
        Running(verifier.request(request.key, setting, request.input_ids), [*request.input_ids])
        for setting, request in product(settings, requests)
    ]
    waiting = list(every)
    while waiting or engine.running:
        engine.running += waiting[:3]
        del waiting[:3]
        engine.step()
    return [asked.tokens[len(asked.served.prompt) : asked.end] for asked in every]


def by_the_loop(setting: ServedSetting, requests: list[Request]) -> list[Generation]:
    method = build_method(language_model(), None, PromptLookup(), setting.rule, setting.sampling, K)
    return generate(method, requests, LIMITS)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_mixed_batch_gives_the_tokens_of_the_loop(temperature: float) -> None:
    sampling = Sampling(temperature, top_k=20 if temperature else 0)
    settings = [
        ServedSetting(registry.rule(name)(**options).bind(language_model(), None), sampling)
        for name, options in RULES.items()
        if sampling.greedy or name != "asd"
    ]
    asked = requests(3, "0/serving")
    expected = [one.output_ids for setting in settings for one in by_the_loop(setting, asked)]
    assert served_together(Verifier(K, 0, CPU), settings, asked) == expected


def test_outcomes_are_those_of_the_loop() -> None:
    setting = ServedSetting(registry.rule("mars")(theta=0.5), Sampling(1.0))
    verifier, asked = Verifier(K, 0, CPU), requests(1)
    [answer] = served_together(verifier, [setting], asked)
    [expected] = by_the_loop(setting, asked)
    found = Generation(prompt_tokens=len(asked[0].input_ids))
    emit(found, answer[:1], LIMITS, language_model())
    for outcome in verifier.take()[asked[0].key]:
        count_cycle(found, outcome, LIMITS, language_model())
    assert found == replace(expected, prefill_s=0.0, decode_s=0.0, finish=found.finish)
    assert verifier.take() == {}


def test_rows_without_a_rule_drawn_drafts_and_a_token_below_zero() -> None:
    """A row of the engine's own gets 0; a drawn draft is accepted where q is p, whatever u is; a
    token below zero ends a draft."""
    verifier = Verifier(2, 2, CPU)
    setting = ServedSetting(registry.rule("lossless")(), Sampling(0.5))
    drawn, cut = (verifier.request(f"0/{key}", setting, [1, 2]) for key in ("drawn", "cut"))
    logits = torch.randn(1 + 3 + 3, 8, generator=torch.Generator().manual_seed(0))
    first = Rows(logits[:3], torch.full((3,), -1), [0, 1, 2], [0, 0, 0])
    assert verifier.step([None, drawn, cut], first)[0].tolist() == [0]
    tokens = torch.tensor([-1, 5, 6, -1, -1, 4, -1])
    rows = Rows(logits, tokens, [0, 3, 4], [2, 0, 2], q=(logits / 0.5).softmax(-1))
    out = verifier.step([drawn, None, cut], rows).tolist()
    assert out[0][:2] == [5, 6] and out[0][2] >= 0
    assert out[1] == [0, -1, -1]
    assert out[2][0] == 4 and out[2][1] >= 0 and out[2][2] == -1
