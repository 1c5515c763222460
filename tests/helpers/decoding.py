"""Methods, and transformers' own answers, in a line."""

from __future__ import annotations

from typing import Any

import torch

from methods import registry
from methods.drafters.base import Drafter
from methods.engine.language_model import LanguageModel
from methods.method import Method, build_method
from methods.rules.base import Rule
from methods.sampling import Sampling


def method_on(
    target: LanguageModel,
    model: Any = None,
    drafter: str | Drafter = "none",
    rule: str | Rule = "greedy",
    temperature: float = 0.0,
    length: int = 4,
) -> Method:
    """A method of these models; a drafter and a rule that are given by name are at their defaults."""
    drafting = registry.drafter(drafter)() if isinstance(drafter, str) else drafter
    deciding = registry.rule(rule)() if isinstance(rule, str) else rule
    return build_method(target, model, drafting, deciding, Sampling(temperature), length)


def generated(model: Any, ids: list[int], new: int, **options: Any) -> list[int]:
    """The greedy answer of transformers' own `generate`."""
    tokens = torch.tensor([ids], device=model.device)
    mask = torch.ones_like(tokens)
    answer = model.generate(
        tokens, attention_mask=mask, max_new_tokens=new, do_sample=False, **options
    )
    return list(answer[0, len(ids) :].tolist())
