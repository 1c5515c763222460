"""What verification costs inside vLLM: `python -m tests.helpers.vllm_share [KEY=VALUE …]`, the options of a cell.

`batch` requests are under way together, and one that ends makes room for the next, until `n` prompts are answered:
once verified by the cell's rule, once by vLLM's own sampler. Printed are tokens a second, the samplers' share of the
time, and how long a request took from its hand-in to its last token."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence

from bench.run.vllm.engine import Vllm, VllmMethod
from methods.decode import Limits, Request
from tests.helpers.in_vllm import cell, requests_of


def report(title: str, method: VllmMethod, requests: Sequence[Request], limits: Limits, by_rule: bool) -> str:
    """One line of measurements, after a warm-up."""
    together = method.cell.batch
    method.answers(requests[:together], limits, rule=by_rule)
    method.loaded.call("extension", method="leeway_seconds", args=[])
    began = time.perf_counter()
    found = method.answers(requests, limits, rule=by_rule, concurrency=together)
    wall = time.perf_counter() - began
    spent, calls = method.loaded.call("extension", method="leeway_seconds", args=[])
    took = sorted(one.last_s - one.begun_s for one in found)
    tokens = sum(len(one.generation.output_ids) for one in found)
    return (f"{title}: {len(found)} answers, {together} at a time, {tokens / wall:.1f} tokens/s; samplers {spent:.2f} "
            f"of {wall:.1f} s, {spent / wall:.1%}, {1e3 * spent / calls:.2f} ms a step; a request "
            f"{statistics.median(took):.2f} s (median), {took[-1]:.2f} s (longest)")


def main(overrides: Sequence[str]) -> None:
    own, engine = cell(*overrides, "engine=vllm"), Vllm()
    try:
        method = engine.load(own)
        requests, limits = requests_of(own, method.target, own.n or 12)
        for title, by_rule in ((f"rule={own.rule.name}", True), ("vLLM's own sampler", False)):
            print(report(title, method, requests, limits, by_rule), flush=True)
    finally:
        engine.keep_only([])


if __name__ == "__main__":
    main(sys.argv[1:])
