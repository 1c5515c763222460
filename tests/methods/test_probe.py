"""What the engine does with a model is what transformers does, or the model is refused before it
decodes."""

from __future__ import annotations

from typing import Any

import pytest

from methods import registry
from methods.engine import probe
from methods.engine.attention import NodeLayout
from methods.engine.cache import SlotCache
from methods.engine.source import ModelError
from methods.sampling import Sampling
from tests.helpers.architectures import config_of, random_model
from tests.helpers.tiny_heads import method_of

pytestmark = pytest.mark.usefixtures("cache")


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
    right = NodeLayout.of.__func__  # type: ignore[attr-defined]

    def broken(cls: type[NodeLayout], *args: Any, **kwargs: Any) -> NodeLayout:
        layout = right(cls, *args, **kwargs)
        if fault == "positions":
            layout.positions = layout.positions + (layout.positions > 20)
        elif fault == "mask":
            layout.slot_ids = layout.slot_ids - 1
        return layout

    monkeypatch.setattr(NodeLayout, "of", classmethod(broken))
    if fault == "rollback":
        monkeypatch.setattr(SlotCache, "commit", lambda cache, counts: cache.advance(3))
    with pytest.raises(
        ModelError, match=r"not those of transformers' own forward: .*% off; give engine=vllm"
    ) as error:
        probe.probe(model)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "words"),
    [
        (
            "mpt",
            ("prompt_lookup", "greedy"),
            ("lookahead", "greedy"),
            "trees are not right with it: .*; take a drafter of chains",
        ),
        (
            "gemma3n_text",
            ("lookahead", "greedy"),
            ("none", registry.rule("dropmatch")(variant="naive")),
            "nothing can read its hidden states: ",
        ),
    ],
)
def test_trees_or_states_alone_are_refused(kind: str, right: Any, wrong: Any, words: str) -> None:
    """MPT's ALiBi counts slots, and a tree puts siblings in neighbouring ones; Gemma 3n stacks
    several streams in a hidden state."""
    model = random_model(config_of(kind))
    probe.check(model)
    method_of(*right, Sampling(0.0), target=model)
    with pytest.raises(ModelError, match=f"{kind}: {words}"):
        method_of(*wrong, Sampling(0.0), target=model)


def test_activations_that_overflow() -> None:
    model = random_model(config_of("llama"))
    model.model.half()
    model.model.model.layers[1].mlp.up_proj.weight.data *= 3e4
    with pytest.raises(
        ModelError, match=r"logits are NaN in engine.dtype=float16: .*; give engine.dtype=bfloat16"
    ):
        probe.probe(model)
