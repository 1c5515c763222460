"""Jinja templates and expressions of a benchmark's YAML over a dataset's rows.

A YAML or a dataset that somebody shares is not to run commands: templates run in Jinja's own
sandbox."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

LONGEST = 16 << 20
"""Characters of a text that a template makes, and the largest number that a filter or a method
takes."""
SECONDS, BYTES = 2.0, 512 << 20
"""What a template may take of time and of memory."""
MOST_BITS = 1 << 16
"""Of a product or power of whole numbers."""
MEMORY = Path("/proc/self/statm")


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

    # `row` for fields whose name is no identifier; a field of that name wins
    names = {"row": row, **row}
    try:
        with _limited():
            value = _template(text).render(names) if kind == "render" else _expression(text)(names)
        if isinstance(value, _environment().undefined):
            str(value)  # raises
    except UndefinedError as error:
        raise TemplateFault(str(error), undefined=True) from error
    except RecursionError:
        raise TemplateFault("it calls itself without end") from None
    except (MemoryError, TimeoutError) as error:
        raise TemplateFault(f"it takes more than {SECONDS:g} s or {BYTES >> 20} MB") from error
    except (
        TemplateError,
        TypeError,
        ValueError,
        LookupError,
        ArithmeticError,
        AttributeError,
    ) as error:
        raise TemplateFault(str(error) or type(error).__name__) from error
    if isinstance(value, str) and len(value) > LONGEST:
        raise TemplateFault(f"more than {LONGEST} characters")
    return value


@contextmanager
def _limited() -> Iterator[None]:
    """Raises TimeoutError and MemoryError inside for what takes more than a template may, in
    seconds of this thread's processor. A step of C takes no longer than its memory and its numbers
    allow."""
    end = time.thread_time() + SECONDS

    def watch(frame: FrameType, event: str, argument: Any) -> Any:
        if time.thread_time() > end:
            raise TimeoutError
        return watch

    tracer, (soft, hard) = sys.gettrace(), resource.getrlimit(resource.RLIMIT_AS)
    taken = int(MEMORY.read_text().split()[0]) * resource.getpagesize() if MEMORY.exists() else None
    if taken is not None:
        limits = [taken + BYTES, *(limit for limit in (soft, hard) if limit >= 0)]
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(tracer)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _check_numbers(values: Iterator[Any]) -> None:
    """Raises ValueError for a number that a filter or a method would take long for."""
    if any(isinstance(value, int) and abs(value) > LONGEST for value in values):
        raise ValueError(f"a number above {LONGEST}, where it would be a length or a digit")


def _careful(filter_: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose numbers are no larger than `LONGEST`."""

    @wraps(filter_)
    def call(*arguments: Any, **named: Any) -> Any:
        _check_numbers(iter((*arguments[1:], *named.values())))
        return filter_(*arguments, **named)

    return call


@cache
def _environment() -> Any:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Limited(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if isinstance(left, int) and isinstance(right, int):
                bits = left.bit_length(), right.bit_length()
                if (sum(bits) if operator == "*" else bits[0] * max(right, 0)) > MOST_BITS:
                    raise ValueError(f"{operator}: a number of more than {MOST_BITS} bits")
            return super().call_binop(context, operator, left, right)

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
            _check_numbers(iter((*args, *kwargs.values())))
            return super().call(__context, __obj, *args, **kwargs)

    environment = Limited(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    environment.filters |= {"after": _after, "shuffled": _shuffled}
    environment.filters = {name: _careful(filter_) for name, filter_ in environment.filters.items()}
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
