"""A cycle waits for the device once: no rule and no drafter reads a tensor outside the one copy to
the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from typing import Any

import pytest
import torch

import methods.decode
from methods import registry
from methods.decode import Limits, Request, generate
from methods.rules.walk import walk
from methods.sampling import Sampling
from tests.helpers.no_wait import allowed, refused
from tests.helpers.rule_table import TABLE, cases
from tests.helpers.tiny_heads import method_of


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


SAMPLED = {"model": {"branching": [2, 2]}, "eagle3": {"branching": [2, 2], "tree": "sampled"}}


@pytest.mark.parametrize(
    ("name", "rule", "temperature", "options"),
    [
        *(
            (name, "greedy" if name == "none" else "mars", 0.0, {})
            for name in registry.names("drafters")
        ),
        *(
            (*drawn, 0.8, SAMPLED[drawn[0]])
            for drawn in product(SAMPLED, ("lossless", "traversal"))
        ),
    ],
)
def test_no_cycle_waits(
    name: str,
    rule: str,
    temperature: float,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But for the first with lookahead, whose windows begin with tokens that random numbers choose,
    once a prompt."""
    copies, started, free = 0, 0, int(name == "lookahead")
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
    method = method_of(name, rule, Sampling(temperature), length=3, **options)
    asked = [Request([5, 6, 7, 5, 6], "0"), Request([1, 2, 1], "1")]
    generations = generate(method, asked, Limits(12, frozenset()), probe)
    assert copies == started == max(len(generation.committed) for generation in generations) > free
