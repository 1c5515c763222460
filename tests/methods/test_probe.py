"""What the engine does with a model is what transformers does, or the model is refused before it
decodes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from methods import registry
from methods.engine import probe
from methods.engine.attention import NodeLayout
from methods.engine.language_model import LanguageModel
from methods.engine.source import ModelError
from methods.method import build_method
from methods.sampling import Sampling
from tests.helpers.architectures import config_of, random_model


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path))


def test_a_model_that_is_right_is_probed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(config_of("llama"))
    probe.check(model)
    found = model.findings
    assert found is not None and not found.trees and not found.states and found.tokens == 80
    monkeypatch.setattr(probe, "probe", lambda _: pytest.fail("it was remembered"))
    probe.check(model)
    assert model.findings == found


@pytest.mark.parametrize("fault", ["positions", "mask", "rollback"])
def test_a_forward_that_is_not_transformers_is_refused(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is broken in one place after another."""
    model = random_model(config_of("gemma2"))
    right, commit = NodeLayout.of.__func__, probe._Trial._begin  # type: ignore[attr-defined]

    def broken(cls: type[NodeLayout], *args: Any, **kwargs: Any) -> NodeLayout:
        layout = right(cls, *args, **kwargs)
        if fault == "positions":
            layout.positions = layout.positions + (layout.positions > 20)
        elif fault == "mask":
            layout.slot_ids = layout.slot_ids - 1
        return layout

    def begin(self: Any, model: LanguageModel) -> Any:
        cache = commit(self, model)
        if fault == "rollback":
            monkeypatch.setattr(type(cache), "commit", lambda cache, counts: cache.advance(3))
        return cache

    monkeypatch.setattr(NodeLayout, "of", classmethod(broken))
    monkeypatch.setattr(probe._Trial, "_begin", begin)
    with pytest.raises(
        ModelError, match=r"not those of transformers' own forward: .*% off; give engine=vllm"
    ) as error:
        probe.probe(model)
    assert len(str(error.value).splitlines()) == 1


class Reads(registry.rule("greedy")):  # type: ignore[misc]
    """A rule that reads the target's hidden states."""

    def needs_hidden(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "words"),
    [
        (
            "mpt",
            "prompt_lookup",
            "lookahead",
            "trees are not right with it: .*; take a drafter of chains",
        ),
        ("gemma3n_text", "lookahead", "reads states", "nothing can read its hidden states: "),
    ],
)
def test_trees_or_states_alone_are_refused(kind: str, right: str, wrong: str, words: str) -> None:
    """MPT's ALiBi counts slots, and a tree puts siblings in neighbouring ones; Gemma 3n stacks
    several streams in a hidden state."""
    model = random_model(config_of(kind))
    probe.check(model)
    for drafter in (right, wrong):
        rule = Reads() if drafter == "reads states" else registry.rule("greedy")()
        name = "none" if drafter == "reads states" else drafter
        with (
            pytest.raises(ModelError, match=f"{kind}: {words}")
            if drafter == wrong
            else nullcontext()
        ):
            build_method(model, None, registry.drafter(name)(), rule, Sampling(0.0), 3)


def test_activations_that_overflow() -> None:
    model = random_model(config_of("llama"))
    model.model.half()
    model.model.model.layers[1].mlp.up_proj.weight.data *= 3e4
    with pytest.raises(
        ModelError, match=r"logits are NaN in engine.dtype=float16: .*; give engine.dtype=bfloat16"
    ):
        probe.probe(model)
