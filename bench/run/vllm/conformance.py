"""Verified drafts of vLLM, recorded inside its worker: of a cell's rule, or of the engine's own sampler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from bench.run.answer import context, limits_of
from bench.run.vllm.engine import Vllm
from methods.decode import Request

if TYPE_CHECKING:
    from bench.config.cell import Cell

PORTION, TOGETHER = 200, 16
"""Cycles that are brought out of the worker at once, and requests answered together."""


def recorded(cell: Cell, cycles: int, by_rule: bool) -> Iterator[dict[str, Any]]:
    """At least so many cycles, as lines of docs/serving.md: the prompts of the cell's task, as
    often as it takes. Raises ModelError, Died."""
    engine = Vllm()
    try:
        method = engine.load(cell)
        task = cell.load_task()
        limits = replace(limits_of(cell, method.target, task), stop=())
        prompts = [context(method.target, prompt, []) for prompt in task.prompts(cell.n, cell.seed)]
        requests = (Request(ids, f"{cell.seed}/conformance/{place}/{pass_}") for pass_ in count()
                    for place, ids in enumerate(prompts))
        method.loaded.call("extension", method="leeway_record", args=[PORTION])
        while cycles > 0:
            method.answers(list(islice(requests, TOGETHER)), limits, rule=by_rule)
            lines = method.loaded.call("extension", method="leeway_record", args=[min(PORTION, max(cycles, 1))])
            if not lines:
                raise ValueError(f"drafter={cell.drafter.name} drafted nothing in {TOGETHER} answers")
            cycles -= len(lines)
            yield from lines
    finally:
        engine.keep_only([])
