"""Logits that become NaN within an answer: its prompt fails in one line, the others of its batch do not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.run.answer import answer, context
from bench.run.models import LabMethod
from methods import registry
from methods.decode import Limits
from methods.engine.loading import load_model
from methods.method import build_method
from methods.sampling import Sampling
from tasks.base import Prompt

PROMPTS = [Prompt("good", (), input_ids=(9, 8, 7)), Prompt("bad", (), input_ids=(5, 6, 5, 6, 5))]


@pytest.mark.parametrize(("drafter", "options", "rule"), [
    ("none", {}, "lossless"), ("prompt_lookup", {}, "mars"), ("model", {"branching": (2, 2)}, "lossless")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_prompt_whose_logits_become_nan(pair_folder: Path, drafter: str, options: dict, rule: str,
                                          temperature: float) -> None:
    target = load_model(str(pair_folder / "target"), check=False)
    model = target.model
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())  # no longer the embedding
    method = LabMethod(build_method(target, load_model(str(pair_folder / "target"), check=False)
                                    if drafter == "model" else None, registry.drafter(drafter)(**options),
                                    registry.rule(rule)(), Sampling(temperature), 2))

    def answered() -> list:
        found = answer(method, PROMPTS, Limits(12, frozenset()), lambda prompt, _: prompt.id,
                       decode=method.generate_with_nll)
        return [found[prompt.id] for prompt in PROMPTS]

    [good], [bad] = answered()
    before = context(target, PROMPTS[1], [])
    poison = next(token for token in bad.output_ids[2:] if token not in (*good.output_ids, *before))
    model.model.embed_tokens.weight.data[poison] = torch.nan  # as activations that overflow behind this token
    [still], broken = answered()
    assert still.output_ids == good.output_ids and still.nll == pytest.approx(good.nll)
    assert "its logits are not finite within the answer" in broken.error and "engine.dtype=" in broken.error
    assert "\n" not in broken.error
