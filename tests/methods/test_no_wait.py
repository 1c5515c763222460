"""A cycle waits for the device once: no rule and no drafter reads a tensor outside the one copy to the host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import methods.decode
from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.loading import load_model
from methods.method import Method, build_method, check
from methods.sampling import Sampling
from tests.helpers.no_wait import Waited, allowed, refused
from tests.helpers.tiny_heads import random_head, random_medusa, small
from tests.helpers.tiny_models import language_model

TINY = Path(__file__).parents[2] / "models" / "tiny"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NEW = 12
OPTIONS: dict[str, dict[str, Any]] = {
    "arc": {"constants": TINY / "arc.json"}, "autojudge": {"classifier": TINY / "autojudge.json"},
    "judge": {"classifier": TINY / "autojudge.json"}, "csd": {"answers": TINY / "answers.json"},
    "either": {"second": {"name": "autojudge", "classifier": str(TINY / "autojudge.json")}}}
TREES = ("eagle", "eagle2", "eagle3", "hass", "medusa", "lookahead")


def cycles_without_waiting(method: Method, rows: list[list[int]], monkeypatch: pytest.MonkeyPatch,
                           free: int = 0) -> None:
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


@pytest.fixture(scope="module")
def pair() -> Any:
    return tuple(load_model(str(TINY / role), device=DEVICE) for role in ("target", "draft"))


def sample_mode(name: str, temperature: float) -> bool | None:
    """How a draft model may draft for the rule: sampled, if it may; else greedily; None where both are refused."""
    for sample in (True, False):
        with suppress(ValueError):
            check(registry.drafter("model")(sample=sample), "model", registry.rule(name)(**OPTIONS.get(name, {})),
                  Sampling(temperature))
            return sample
    return None


CASES = [(name, temperature) for name in registry.names("rules") for temperature in (0.0, 0.8)
         if sample_mode(name, temperature) is not None]


def test_every_rule_has_a_case() -> None:
    assert {name for name, _ in CASES} == set(registry.names("rules"))


@pytest.mark.parametrize(("name", "temperature"), CASES)
def test_no_rule_waits(name: str, temperature: float, pair: Any, tmp_path: Path,
                       monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = pair
    options = OPTIONS.get(name, {})
    if name == "judge":  # no judge of the embedded pair is shipped
        size = target.embedding.shape[1]
        options = {"classifier": tmp_path / "judge.json"}
        options["classifier"].write_text(json.dumps({
            "kind": "judge", "target": target.source, "fingerprint": target.fingerprint, "features": "target",
            "mean": [0.0] * size, "scale": [1.0] * size, "coef": [0.1] * size, "intercept": 0.0}))
    method = build_method(target, draft, registry.drafter("model")(sample=sample_mode(name, temperature)),
                          registry.rule(name)(**options), Sampling(temperature), 3)
    cycles_without_waiting(method, [[5, 6, 7, 8, 9], [40, 41]], monkeypatch)


@pytest.mark.parametrize("name", registry.names("drafters"))
def test_no_drafter_waits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, drafter = language_model("llama", layers=4), small(name)
    model: Any = None
    if name == "medusa":
        model = random_medusa(target)
    elif drafter.model_role == "draft":
        model = language_model("llama", layers=1, seed=2)
    elif drafter.model_role is not None:
        model = random_head(name, target)
    method = build_method(target, model, drafter, registry.rule("mars")() if name != "none" else
                          registry.rule("greedy")(), Sampling(0.0), 3)
    first = int(name == "lookahead")  # its windows begin with tokens that random numbers choose, once a prompt
    cycles_without_waiting(method, [[5, 6, 7, 5, 6], [1, 2, 1]], monkeypatch, first)


@pytest.mark.parametrize("read", [
    lambda x: x.sum().item(), lambda x: x.tolist(), lambda x: bool(x.any()), lambda x: x[x > 0],
    lambda x: x.nonzero(), lambda x: x.unique(), lambda x: x.cpu(), lambda x: x[int(x.argmax())]])
def test_every_way_of_waiting_is_refused(read: Any) -> None:
    x = torch.tensor([1, 0, 2])
    with pytest.raises(Waited), torch.inference_mode(), refused():
        read(x)
    with torch.inference_mode(), refused():
        assert x[1:].shape == (2,)
        with allowed():
            assert x.tolist() == [1, 0, 2]


@pytest.mark.parametrize("rule", ["lossless", "traversal"])
@pytest.mark.parametrize("name", ["model", "eagle3"])
def test_no_sampled_tree_waits(name: str, rule: str, pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = pair
    options = {"branching": [2, 2]} if name == "model" else {"branching": [2, 2], "tree": "sampled"}
    model = draft if name == "model" else random_head(name, target)
    method = build_method(target, model, registry.drafter(name)(**options), registry.rule(rule)(), Sampling(0.8), 3)
    cycles_without_waiting(method, [[5, 6, 7, 8, 9], [40, 41]], monkeypatch)
