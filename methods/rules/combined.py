"""Rules made of other rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, PrivateAttr, ValidationError
from torch import Tensor

from methods import registry
from methods.rules.base import (
    Decision,
    DraftCapabilities,
    Model,
    NamedTensors,
    Rule,
    Sampling,
    Target,
    Verification,
)


def built(section: Mapping[str, Any]) -> Rule:
    """The rule `name` with the other entries as its options. Raises ValueError, one line, for one
    that is unknown, has bad options or does not decide each node from its own context."""
    options = dict(section)
    name = options.pop("name", None)
    single = [
        n
        for n in registry.names("rules")
        if registry.rule(n).local and not issubclass(registry.rule(n), Nested)
    ]
    if name in single:
        try:
            rule: Rule = registry.rule(name)(**options)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(
                f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
            ) from error
        if rule.is_memoryless():
            return rule
    raise ValueError(f"name={name} cannot be combined; give one of: {', '.join(single)}")


def _complete(section: dict[str, Any]) -> dict[str, Any]:
    rule = built(section)  # raises for a missing or unknown name
    return {"name": section["name"], **rule.model_dump()}


Options = Annotated[dict[str, Any], AfterValidator(_complete)]
"""`name` of a rule and its options; those that are not given are filled in."""


class Nested(Rule):
    """A rule with others inside: it needs what they need."""

    model_config = ConfigDict(validate_default=True)
    _rules: tuple[Rule, ...] = PrivateAttr(())

    def needs_hidden(self) -> bool:
        return any(rule.needs_hidden() for rule in self._rules)

    def needs_draft_hidden(self) -> bool:
        return any(rule.needs_draft_hidden() for rule in self._rules)

    def has_own_randomness(self) -> bool:
        return any(rule.has_own_randomness() for rule in self._rules)

    def needs_q(self, sampling: Sampling) -> bool:
        return any(rule.needs_q(sampling) for rule in self._rules)

    def bonus_needs_q(self, sampling: Sampling) -> bool:
        return self._rules[0].bonus_needs_q(sampling)

    def emits_argmax(self, sampling: Sampling) -> bool:
        return self._rules[0].emits_argmax(sampling)

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        for rule in self._rules:
            rule.check(candidates, sampling)

    def bind(self, target: Target, model: Model | None) -> Self:
        bound = self.model_copy()
        bound._rules = tuple(rule.bind(target, model) for rule in self._rules)
        return bound

    def statistics(self, v: Verification) -> NamedTensors:
        return {
            name: numbers for rule in self._rules for name, numbers in rule.statistics(v).items()
        }


class Either(Nested):
    """Combine two rules: a draft token is accepted if either accepts it; correction and bonus come
    from the first.

        accept x  iff  first accepts x  or  second accepts x;   correction and bonus: the first
                  rule's

    `first` and `second` are any two rules with their options; both use the same random numbers.
    Source: DropMatch, section 4.3, which combines DropMatch with AutoJudge.

    first, second: `name` of a rule and its options."""

    first: Options = Field(
        {
            "name": "dropmatch",
            "variant": "js",
            "heads": 5,
            "p_drop": 0.3,
            "selection": "argmax",
            "nucleus": 0.9,
        }
    )
    second: Options = Field({"name": "autojudge", "classifier": None, "threshold": 0.5})

    def model_post_init(self, _: Any) -> None:
        self._rules = (built(self.first), built(self.second))

    def decide(self, v: Verification) -> Decision:
        first, second = (rule.decide(v) for rule in self._rules)
        lossless = (
            second.lossless_accept if first.lossless_accept is None else first.lossless_accept
        )
        return Decision(first.accept | second.accept, lossless, {**first.flags, **second.flags})

    def by_threshold(self, v: Verification) -> Tensor:
        """Accepted, but by neither rule without its threshold."""
        accepted = [rule.decide(v).accept for rule in self._rules]
        relaxed = [rule.by_threshold(v) for rule in self._rules]
        without = [accept & ~only for accept, only in zip(accepted, relaxed, strict=True)]
        return (accepted[0] | accepted[1]) & ~without[0] & ~without[1]

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return self._rules[0].emit(v, node)
