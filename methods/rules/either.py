"""Combine two rules: a draft token is accepted if either accepts it; correction and bonus come from the first.

    accept x  iff  first accepts x  or  second accepts x;   correction and bonus: the first rule's

`first` and `second` are any two rules with their options; both use the same random numbers.
Source: DropMatch, section 4.3, which combines DropMatch with AutoJudge.

In docs/rules.md
  accepts  what one of two rules accepts
  reads    what the two rules read
  emits    that of the first rule
  strict   both rules at their strict limits
  source   DropMatch, section 4.3
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, field_validator
from torch import Tensor

from methods import registry
from methods.rules.base import DraftCapabilities, Rule
from methods.rules.verification import Verification
from methods.rules.walk import Decision
from methods.sampling import Sampling

if TYPE_CHECKING:  # transformers is slow to import
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head


def _built(given: Mapping[str, Any]) -> Rule:
    options = dict(given)
    name = options.pop("name", None)
    if name not in registry.names("rules") or name == "either" or not registry.rule(name).local:
        allowed = ", ".join(n for n in registry.names("rules") if n != "either" and registry.rule(n).local)
        raise ValueError(f"name={name} cannot be combined; give one of: {allowed}")
    try:
        return registry.rule(name)(**options)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


class Either(Rule):
    """first, second: `name` of a rule and its options."""

    model_config = ConfigDict(validate_default=True)
    first: dict[str, Any] = Field({"name": "dropmatch", "variant": "js", "heads": 5, "p_drop": 0.3,
                                   "selection": "argmax", "nucleus": 0.9})
    second: dict[str, Any] = Field({"name": "autojudge", "classifier": None, "threshold": 0.5})
    _rules: tuple[Rule, ...] = PrivateAttr(())

    @field_validator("first", "second")
    @classmethod
    def _complete(cls, given: dict[str, Any]) -> dict[str, Any]:
        rule = _built(given)  # raises for a missing or unknown name
        return {"name": given["name"], **rule.model_dump()}

    def model_post_init(self, _: Any) -> None:
        self._rules = (_built(self.first), _built(self.second))

    @property
    def needs_hidden(self) -> bool:  # type: ignore[override]  # depends on the two rules
        return any(rule.needs_hidden for rule in self._rules)

    @property
    def needs_draft_hidden(self) -> bool:  # type: ignore[override]  # known once bound
        return any(rule.needs_draft_hidden for rule in self._rules)

    def needs_q(self, sampling: Sampling) -> bool:
        return any(rule.needs_q(sampling) for rule in self._rules)

    def bonus_needs_q(self, sampling: Sampling) -> bool:
        return self._rules[0].bonus_needs_q(sampling)

    def emits_argmax(self, sampling: Sampling) -> bool:
        return self._rules[0].emits_argmax(sampling)

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        for rule in self._rules:
            rule.check(candidates, sampling)

    def bind(self, target: LanguageModel, model: LanguageModel | Head | None) -> Either:
        bound = self.model_copy()
        bound._rules = tuple(rule.bind(target, model) for rule in self._rules)
        return bound

    def decide(self, v: Verification) -> Decision:
        first, second = (rule.decide(v) for rule in self._rules)
        lossless = second.lossless_accept if first.lossless_accept is None else first.lossless_accept
        return Decision(first.accept | second.accept, lossless, {**first.flags, **second.flags})

    def by_threshold(self, v: Verification) -> Tensor:
        """Accepted, but by neither rule without its threshold."""
        accepted = [rule.decide(v).accept for rule in self._rules]
        relaxed = [rule.by_threshold(v) for rule in self._rules]
        without = [accept & ~only for accept, only in zip(accepted, relaxed, strict=True)]
        return (accepted[0] | accepted[1]) & ~without[0] & ~without[1]

    def statistics(self, v: Verification) -> dict[str, Tensor]:
        return {name: numbers for rule in self._rules for name, numbers in rule.statistics(v).items()}

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return self._rules[0].emit(v, node)
