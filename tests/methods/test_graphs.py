"""Recorded calls give the tokens of direct ones. On the CPU a recording is replayed by calling its
function again, on the buffers that it was recorded with, which is what a CUDA graph does."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.graphs import Graphs
from methods.method import Method, build_method
from methods.sampling import Sampling
from tests.helpers.devices import DEVICES, graphs_on, replayed
from tests.helpers.tiny_heads import random_head, small
from tests.helpers.tiny_models import language_model

ROWS = [[5, 6, 7, 5, 6], [1, 2, 1]]
LIMITS = Limits(16, frozenset())


def method_of(
    name: str, rule: str, temperature: float, device: str, graphs: Graphs | None
) -> Method:
    target = deepcopy(language_model("llama", layers=4))  # other tests share it
    target.model.to(device)
    target.graphs = graphs
    model: Any = None
    if name == "model":
        model = deepcopy(language_model("llama", layers=1, seed=2))
        model.model.to(device)
        model.graphs = graphs
    elif name.startswith("eagle"):
        model = replace(random_head(name, target), graphs=graphs, lean=True)
    return build_method(target, model, small(name), registry.rule(rule)(), Sampling(temperature), 3)


@pytest.mark.parametrize(
    "name, rule, temperature",
    [
        ("model", "lossless", 0.8),
        ("model", "fly", 0.0),
        ("eagle", "mars", 0.0),
        ("eagle3", "greedy", 0.0),
        ("prompt_lookup", "lossless", 0.8),
    ],
)
@pytest.mark.parametrize("device", DEVICES)
def test_tokens_are_those_of_direct_calls(
    name: str, rule: str, temperature: float, device: str
) -> None:
    graphs = graphs_on(device)
    direct, recorded = (
        method_of(name, rule, temperature, device, given) for given in (None, graphs)
    )
    for prompt in (0, 1):
        requests = [Request(row, f"{prompt} {index}") for index, row in enumerate(ROWS)]
        want, got = (generate(method, requests, LIMITS) for method in (direct, recorded))
        assert [(g.output_ids, g.committed, g.accepted, g.relaxed) for g in got] == [
            (g.output_ids, g.committed, g.accepted, g.relaxed) for g in want
        ]
    assert graphs.replays > 2 * len(graphs.recordings) > 0


def test_the_memory_of_a_cache_that_is_gone_serves_the_next() -> None:
    """Recordings read and write it where it is, so that they serve the next answer too."""
    target, graphs = deepcopy(language_model("llama", layers=2)), Graphs(replayed)
    target.graphs = graphs
    first = target.new_cache(2, 20)
    memory = first.memory
    first.set_lengths([3, 4])
    assert target.new_cache(2, 20).memory is not memory, "while it is in use"
    graphs.free.clear()
    del first
    second = target.new_cache(2, 17)
    assert (
        second.memory is memory
        and not graphs.free
        and second.starts.tolist() == second.lengths == [0, 0]
    )
    del second
    assert (
        target.new_cache(2, 40).memory is not memory
        and target.new_cache(1, 20).memory is not memory
    )
