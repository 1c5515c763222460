"""Starts as a script: renders templates and evaluates expressions for `tasks.sandbox.templates`, under limits.

Jinja's sandbox keeps templates from Python's internals; the limits keep them from taking the machine's time and memory.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from jinja2 import StrictUndefined, TemplateError
from jinja2.exceptions import UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tasks.sandbox import landlock, seccomp, wire

LONGEST = 16 * 1024 * 1024
MEMORY_MB = 1024


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    _limit()
    wire.send(channel, "ready")
    row: dict[str, Any] = {}
    while True:
        try:
            kind, text, data = wire.receive(channel)
        except EOFError:
            return
        row = row if data is None else wire.decode(data, lambda _: None)
        wire.send(channel, _answer(kind, text, row))


def _limit() -> None:
    size = MEMORY_MB * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with suppress(OSError):  # beyond Jinja's sandbox: the command line does not depend on it
            landlock.confine(sys.path, [])
            seccomp.install((os.getpid(),))


def _answer(kind: str, text: str, row: dict[str, Any]) -> dict[str, Any]:
    try:
        value = _template(text).render(_names(row)) if kind == "render" else _value(text, row)
        if isinstance(value, str) and len(value) > LONGEST:
            raise ValueError(f"more than {LONGEST} characters")
        return {"value": wire.encode(value, _refuse)}
    except UndefinedError as error:
        return {"undefined": str(error)}
    except MemoryError:
        return {"error": f"it takes more than {MEMORY_MB} MiB of memory"}
    except RecursionError:
        return {"error": "it calls itself without end"}
    except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        return {"error": str(error) or type(error).__name__}


def _value(text: str, row: dict[str, Any]) -> Any:
    value = _expression(text)(_names(row))
    if isinstance(value, StrictUndefined):
        str(value)  # raises
    return value


def _names(row: dict[str, Any]) -> dict[str, Any]:
    """The row's fields, and `row` for those whose name is no identifier; a field of that name wins."""
    return {"row": row} | row


def _refuse(value: Any) -> Any:
    raise TypeError(f"a value of type {type(value).__name__} is not data")


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
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


if __name__ == "__main__":
    main()
