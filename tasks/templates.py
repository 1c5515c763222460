"""Jinja templates and expressions of a benchmark's YAML over a dataset's rows.

A YAML or a dataset that somebody shares is not to run commands: templates run in Jinja's own
sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

LONGEST = 16 << 20
"""Characters of a text that a template makes."""


class TemplateFault(ValueError):
    """A template or expression that gives no value. `undefined`: it names a field that the row does
    not have."""

    def __init__(self, text: str, undefined: bool = False) -> None:
        super().__init__(" ".join(text.split())[:500])
        self.undefined = undefined


def render(template: str, row: Mapping[str, Any]) -> str:
    """The text that a template makes of a row. Raises TemplateFault."""
    return str(_value("render", template, row))


def evaluate(expression: str, row: Mapping[str, Any]) -> Any:
    """The value of an expression over a row. Raises TemplateFault."""
    return _value("evaluate", expression, row)


def _value(kind: str, text: str, row: Mapping[str, Any]) -> Any:
    from jinja2 import TemplateError
    from jinja2.exceptions import UndefinedError

    names = {
        "row": row,
        **row,
    }  # `row` for fields whose name is no identifier; a field of that name wins
    try:
        value = _template(text).render(names) if kind == "render" else _expression(text)(names)
        if isinstance(value, _environment().undefined):
            str(value)  # raises
    except UndefinedError as error:
        raise TemplateFault(str(error), undefined=True) from error
    except RecursionError:
        raise TemplateFault("it calls itself without end") from None
    except (
        TemplateError,
        TypeError,
        ValueError,
        LookupError,
        ArithmeticError,
        AttributeError,
        MemoryError,
    ) as error:
        raise TemplateFault(str(error) or type(error).__name__) from error
    if isinstance(value, str) and len(value) > LONGEST:
        raise TemplateFault(f"more than {LONGEST} characters")
    return value


@cache
def _environment() -> Any:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    environment.filters |= {"after": _after, "shuffled": _shuffled}
    return environment


def _after(text: str, mark: str) -> str:
    """What follows the last `mark`. Raises ValueError where there is none."""
    if mark not in text:
        raise ValueError(f"no {mark!r} in {text[-60:]!r}")
    return text.rpartition(mark)[2].strip()


def _shuffled(values: list[Any], seed: str) -> list[Any]:
    """The values in an order that only their number and the seed decide."""
    return Random(seed).sample(values, len(values))


@cache
def _template(text: str) -> Any:
    return _environment().from_string(text)


@cache
def _expression(text: str) -> Any:
    return _environment().compile_expression(text, undefined_to_none=False)
