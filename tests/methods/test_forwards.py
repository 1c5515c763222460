"""`Drafter.forwards` is what a drafter runs of its model in a cycle, counted while it decodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.language_model import LanguageModel
from methods.heads.head import Head
from methods.method import build_method
from methods.sampling import Sampling
from tests.helpers.tiny_heads import OPTIONS, SMALL, model_for
from tests.helpers.tiny_models import language_model

CASES = [
    ("model", {}, 4), ("model", {"branching": [2, 2]}, 3), ("model", {"stop_below": 0.3}, 4), ("early_exit", {}, 3),
    ("early_exit", {"stop_below": 0.02}, 4), ("eagle3", {"tree": "chain", "stop_below": 0.03}, 4), ("suffix", {}, 3),
    ("eagle3", SMALL, 3), ("eagle3", {"tree": "chain"}, 1), ("eagle3", {"tree": "chain"}, 4),
    ("eagle2", {"tree": "sampled", "branching": [3, 2]}, 4), ("hass", SMALL, 3), ("eagle", OPTIONS["eagle"], 3),
    ("medusa", OPTIONS["medusa"], 3), ("prompt_lookup", {}, 3), ("none", {}, 3), ("lookahead", OPTIONS["lookahead"], 3)]


@pytest.mark.parametrize(("name", "options", "length"), CASES)
def test_forwards_of_a_cycle(name: str, options: dict[str, Any], length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target, drafter = language_model(layers=3), registry.drafter(name)(**options)
    model: Any = model_for(name, target)
    method = build_method(target, model, drafter, registry.rule("lossless")(), Sampling(0.0), length)
    cycles: list[list[int]] = []
    drafting = False

    @contextmanager
    def probe(phase: str) -> Iterator[None]:
        nonlocal drafting
        drafting = phase == "draft"
        if drafting:
            cycles.append([])
        yield
        drafting = False

    def counted(kind: type, attribute: str, tokens_of) -> None:
        original = getattr(kind, attribute)

        def run(self, *args: Any, **kwargs: Any) -> Any:
            if drafting:
                cycles[-1].append(tokens_of(args[0]))
            return original(self, *args, **kwargs)

        monkeypatch.setattr(kind, attribute, run)

    counted(LanguageModel, "forward", lambda tokens: tokens.shape[1])
    counted(Head, "step", lambda tokens: tokens.shape[1])
    if name == "medusa":
        counted(type(model.model), "forward", lambda hidden: 1)
    [answer] = generate(method, [Request([1, 2, 3, 1, 2], "x")], Limits(12, frozenset()), probe)
    assert len(cycles) == len(answer.committed) > 1
    for run, levels in zip(cycles, answer.levels, strict=True):
        first, *rest = drafter.forwards(length, levels) or (None,)
        assert run[1:] == rest and bool(run) == (first is not None)
        assert not run or first == 1 <= run[0], "the first forward also reads what was committed before"
