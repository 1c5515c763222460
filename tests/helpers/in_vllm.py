"""Cells in vLLM and in the loop of this project, side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.config.cell import Cell
from bench.run.answer import context, limits_of, stream_name
from bench.run.engine import DecodingEngine
from methods.batch import Generation
from methods.decode import Request
from methods.engine.margin import top2_margin
from tests.helpers.composing import cell_of

APART = {"prefill_s": 0.0, "decode_s": 0.0, "nll": None}
"""What two engines may differ in."""


@dataclass
class Difference:
    """Where an answer in vLLM leaves that of the loop, and by how much the two largest logits
    differ there."""

    rule: str
    prompt: int
    at: int
    margin: float


def answers(engine: DecodingEngine, cell: Cell, n: int) -> tuple[list[Request], list[Generation]]:
    """The first requests of a cell, and their answers."""
    method, task = engine.load(cell), cell.load_task()
    text = method.target
    requests = [
        Request(context(text, prompt, []), stream_name(cell, task, prompt, 0))
        for prompt in task.prompts(n, cell.seed)
    ]
    return requests, method.generate_with_nll(requests, limits_of(cell, text, task))


def differences(
    engine: DecodingEngine, other: DecodingEngine, words: str, n: int
) -> tuple[list[Difference], float]:
    """Where the answers of the two engines differ, counts included; and the largest difference of
    NLL a token among equal answers. `engine` runs engine=vllm."""
    in_vllm, native = cell_of(f"{words} engine=vllm"), cell_of(words)
    requests, got = answers(engine, in_vllm, n)
    _, expected = answers(other, native, n)
    apart, nats = [], 0.0
    for place, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        if replace(ours, **APART) == replace(theirs, **APART):
            nats = max(nats, abs(ours.nll - theirs.nll) / len(ours.output_ids))
            continue
        pairs = list(zip(ours.output_ids, theirs.output_ids, strict=False))
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs) - 1)
        read = [*requests[place].input_ids, *theirs.output_ids[:at]]
        margin = top2_margin(other.load(native).next_logits(read))
        apart.append(Difference(in_vllm.rule.name, place, at, margin))
    return apart, nats
