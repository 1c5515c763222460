"""A cycle waits for the device once: no rule and no drafter reads a tensor outside the one copy to
the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

import methods.decode
from methods import registry
from methods.decode import Limits, Request, generate
from methods.method import Method
from methods.rules.walk import walk
from methods.sampling import Sampling
from tests.helpers.no_wait import allowed, refused
from tests.helpers.rule_table import TABLE, cases
from tests.helpers.tiny_heads import method_of

NEW = 12


def cycles_without_waiting(
    method: Method, rows: list[list[int]], monkeypatch: pytest.MonkeyPatch, free: int = 0
) -> None:
    """Decode; the first `free` cycles may read what they like. Raises Waited."""
    copies, started = 0, 0
    to_host = methods.decode._to_host

    def counted(columns: Any) -> Any:
        nonlocal copies
        copies += 1
        with allowed():
            return to_host(columns)

    @contextmanager
    def probe(phase: str) -> Iterator[None]:
        nonlocal started
        started += phase == "draft"
        with refused() if started > free else nullcontext():
            yield

    monkeypatch.setattr(methods.decode, "_to_host", counted)
    requests = [Request(row, str(i)) for i, row in enumerate(rows)]
    generations = generate(method, requests, Limits(NEW, frozenset()), probe)
    assert copies == started == max(len(generation.committed) for generation in generations) > free


@pytest.mark.parametrize(
    "label", [*TABLE, *sorted(set(registry.names("rules")) - {e.name for e in TABLE.values()})]
)
def test_no_rule_waits(label: str) -> None:
    """A rule of one's own, which is not in the table, with its default options."""
    rule = TABLE[label].rule() if label in TABLE else registry.rule(label)()
    seen = [v for temperature in (0.0, 1.0) for v in cases(rule, Sampling(temperature), range(1))]
    for v in seen:
        with torch.inference_mode(), refused():
            path = walk(v, rule.decide(v))
            rule.next_state(v, path, rule.next_token(v, path.last, v.u[:, 0]))
    assert seen


@pytest.mark.parametrize("name", registry.names("drafters"))
def test_no_drafter_waits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The windows of lookahead begin with tokens that random numbers choose, once a prompt."""
    method = method_of(name, "mars" if name != "none" else "greedy", Sampling(0.0), length=3)
    first = int(name == "lookahead")
    cycles_without_waiting(method, [[5, 6, 7, 5, 6], [1, 2, 1]], monkeypatch, first)


@pytest.mark.parametrize("rule", ["lossless", "traversal"])
@pytest.mark.parametrize("name", ["model", "eagle3"])
def test_no_sampled_tree_waits(name: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"branching": [2, 2]} | ({"tree": "sampled"} if name == "eagle3" else {})
    method = method_of(name, rule, Sampling(0.8), length=3, **options)
    cycles_without_waiting(method, [[5, 6, 7, 8, 9], [40, 41]], monkeypatch)
