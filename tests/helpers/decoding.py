"""Methods in a line."""

from __future__ import annotations

from typing import Any

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
