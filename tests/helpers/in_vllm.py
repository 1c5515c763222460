"""Cells in vLLM and in the loop of this project, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.config.cell import Cell
from bench.config.compose import composer
from bench.run.answer import context, limits_of, stream_name
from bench.run.engine import DecodingEngine
from methods.batch import Generation
from methods.decode import Limits, Request

APART = {"prefill_s": 0.0, "decode_s": 0.0, "nll": None}
"""What two engines may differ in."""


def cell(*overrides: str) -> Cell:
    with composer() as hydra:
        return hydra.point(list(overrides)).cell


@dataclass
class Difference:
    """Where an answer in vLLM leaves that of the loop, and by how much the two largest logits
    differ there."""

    rule: str
    prompt: int
    at: int
    margin: float


def requests_of(own: Cell, text, n: int) -> tuple[list[Request], Limits]:
    task = own.load_task()
    prompts = task.prompts(n, own.seed)
    return (
        [
            Request(context(text, prompt, []), stream_name(own, task, prompt, 0))
            for prompt in prompts
        ],
        limits_of(own, text, task),
    )


def answers(engine: DecodingEngine, own: Cell, n: int) -> tuple[list[Request], list[Generation]]:
    method = engine.load(own)
    requests, limits = requests_of(own, method.target, n)
    return requests, method.generate_with_nll(requests, limits)


def differences(
    engine: DecodingEngine, other: DecodingEngine, overrides: Sequence[str], n: int
) -> tuple[list[Difference], float]:
    """Where the answers of the two engines differ, counts included; and the largest difference of
    NLL a token among equal answers. `engine` runs engine=vllm."""
    from methods.engine.margin import top2_margin

    ours, theirs = cell(*overrides, "engine=vllm"), cell(*overrides)
    requests, found = answers(engine, ours, n)
    _, expected = answers(other, theirs, n)
    apart, nats = [], 0.0
    for place, (one, two) in enumerate(zip(found, expected, strict=True)):
        if replace(one, **APART) == replace(two, **APART):
            nats = max(nats, abs(one.nll - two.nll) / len(one.output_ids))
            continue
        pairs = zip(one.output_ids, two.output_ids, strict=False)
        at = next(
            (i for i, (a, b) in enumerate(pairs) if a != b),
            min(len(one.output_ids), len(two.output_ids)) - 1,
        )
        logits = other.load(theirs).next_logits([*requests[place].input_ids, *two.output_ids[:at]])
        apart.append(Difference(ours.rule.name, place, at, top2_margin(logits)))
    return apart, nats
