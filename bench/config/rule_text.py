"""A rule as one text, `rule=mars rule.theta=0.9`, where nothing is composed: a file's check, a request to a server.

Nothing in such a text may run code, hang or end in a traceback. Imports no Hydra."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from bench.config.errors import ConfigError
from bench.config.section import check_known, parse
from methods import registry, user_yaml
from results.store.errors import one_line

if TYPE_CHECKING:
    from methods.rules.base import Rule

OPENING = (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken, yaml.BlockSequenceStartToken,
           yaml.BlockMappingStartToken)
CLOSING = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)
LONGEST, DEEPEST = 2000, 5
"""Characters of a rule's text, and lists in lists in it: several times those of the longest rule of docs/rules.md."""


def words_of(text: str) -> list[str]:
    """The overrides of a text, split as a shell does. Raises ConfigError, one line."""
    if len(text) > LONGEST:
        raise ConfigError(f"{_shown(text)}: a rule of {len(text)} characters; at most {LONGEST} are read")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{_shown(text)}: {str(error).lower()}; close each quotation mark, or write \\\"") from error


def rule_of(overrides: Sequence[str]) -> Rule:
    """The rule that `rule=NAME` and `rule.OPTION=VALUE` name; lossless without a name. Raises ConfigError, one line."""
    name, options = read(overrides)
    return parse(registry.rule(name), {"rule": options}, "rule")


def read(overrides: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Name and options of a rule, as plain data. Raises ConfigError, one line."""
    name, options = "lossless", dict[str, Any]()
    for given in overrides:
        key, equals, value = given.partition("=")
        if not equals or not (key == "rule" or key.startswith("rule.")):
            raise ConfigError(f"{_shown(given)}: unknown; give rule=NAME and rule.OPTION=VALUE")
        if key == "rule":
            name = value
        else:
            options[key.removeprefix("rule.")] = _value(given, value)
    check_known("rule", name, registry.names("rules"))
    return name, options


def options_of(given: Any) -> set[str]:
    """The names of all options in a rule's plain data, those of the rules inside it too."""
    parts = given.values() if isinstance(given, Mapping) else given if isinstance(given, list | tuple) else ()
    return set(map(str, given if isinstance(given, Mapping) else ())) | {name for part in parts
                                                                         for name in options_of(part)}


def _value(given: str, text: str) -> Any:
    """A value in YAML, without its tags, anchors and aliases: plain numbers, words, lists and mappings."""
    depth = 0
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.TagToken | yaml.AnchorToken | yaml.AliasToken):
                raise ValueError("tags, anchors and aliases are not read")
            depth += isinstance(token, OPENING) - isinstance(token, CLOSING)
            if depth > DEEPEST:
                raise ValueError(f"more than {DEEPEST} lists in one another")
        return user_yaml.parse(text)
    except (yaml.YAMLError, ValueError) as error:
        reason = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{_shown(given)}: not of the form KEY=VALUE ({one_line(reason)})") from error


def _shown(text: str) -> str:
    return one_line(text if len(text) <= 80 else f"{text[:80]}…")
