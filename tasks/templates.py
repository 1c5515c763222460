"""Jinja templates and expressions of a benchmark's YAML over a dataset's rows, in a process of bounded time and memory.

A YAML or a dataset that somebody shares is not to run commands or to hang: templates run in Jinja's own sandbox, in
one process that all rows share and that is replaced when a template takes too long."""

from __future__ import annotations

import atexit
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from random import Random
from typing import Any

SECONDS = 5.0
"""The longest that one template may take for one row."""
LONGEST = 16 * 1024 * 1024
"""Characters of a text that a template makes."""
MEMORY_MB = 1024
_START_SECONDS = 120.0


class TemplateFault(ValueError):
    """A template or expression that gives no value. `undefined`: it names a field that the row does not have."""

    def __init__(self, text: str, undefined: bool = False) -> None:
        super().__init__(" ".join(text.split())[:500])
        self.undefined = undefined


def render(template: str, row: Mapping[str, Any]) -> str:
    """The text that a template makes of a row. Raises TemplateFault."""
    return str(_ask("render", template, row))


def evaluate(expression: str, row: Mapping[str, Any]) -> Any:
    """The value of an expression over a row: plain data. Raises TemplateFault."""
    return _ask("evaluate", expression, row)


class _Process:
    """The process that renders, started by the one that `owner` names."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._row: Mapping[str, Any] | None = None
        self._channel, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-I", "-B", __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                             start_new_session=True)  # an interrupt is the harness' to handle
        try:
            self._answer(_START_SECONDS)
        except (TimeoutError, EOFError, OSError) as error:
            raise TemplateFault(f"templates cannot be run: {self.close() or error}") from error

    def ask(self, kind: str, text: str, row: Mapping[str, Any]) -> tuple[str, Any]:
        """Raises TimeoutError, EOFError where the process ended, OSError."""
        self._channel.send((kind, text, None if row is self._row else dict(row)))
        self._row = row
        return self._answer(SECONDS)

    def _answer(self, seconds: float) -> Any:
        if not self._channel.poll(seconds):
            raise TimeoutError
        return self._channel.recv()

    def close(self) -> str:
        """End the process; the last of what it complained of."""
        self._process.kill()
        said = self._process.communicate()[1].decode(errors="replace").strip()
        self._channel.close()
        return said.rpartition("\n")[2]


_lock = threading.Lock()
_processes: list[_Process] = []


def _ask(kind: str, text: str, row: Mapping[str, Any]) -> Any:
    with _lock:
        if not _processes or _processes[0].owner != os.getpid():
            _processes[:] = [_Process()]
        try:
            state, answer = _processes[0].ask(kind, text, row)
        except TimeoutError:
            _close()
            raise TemplateFault(f"no end after {SECONDS:g} s") from None
        except (OSError, EOFError) as error:
            _close()
            raise TemplateFault(f"it ended the process that runs templates: {error}") from None
    if state != "value":
        raise TemplateFault(answer, undefined=state == "undefined")
    return answer


@atexit.register
def _close() -> None:
    while _processes:
        process = _processes.pop()
        if process.owner == os.getpid():
            process.close()


def main(channel: Connection) -> None:
    """In the process: render until nobody asks."""
    size = MEMORY_MB << 20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    channel.send("ready")
    row: dict[str, Any] = {}
    while True:
        try:
            kind, text, data = channel.recv()
        except EOFError:
            return
        row = row if data is None else data
        answer = _answered(kind, text, row)
        try:
            channel.send(answer)
        except Exception as error:  # whatever pickle raises for a value that is no plain data
            channel.send(("error", f"a value of type {type(answer[1]).__name__} is not data: {error}"))


def _answered(kind: str, text: str, row: dict[str, Any]) -> tuple[str, Any]:
    from jinja2 import TemplateError
    from jinja2.exceptions import UndefinedError

    names = {"row": row} | row  # `row` for fields whose name is no identifier; a field of that name wins
    try:
        value = _template(text).render(names) if kind == "render" else _expression(text)(names)
        if kind == "evaluate" and isinstance(value, _environment().undefined):
            str(value)  # raises
        if isinstance(value, str) and len(value) > LONGEST:
            raise ValueError(f"more than {LONGEST} characters")
        return "value", value
    except UndefinedError as error:
        return "undefined", str(error)
    except MemoryError:
        return "error", f"it takes more than {MEMORY_MB} MiB of memory"
    except RecursionError:
        return "error", "it calls itself without end"
    except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        return "error", str(error) or type(error).__name__


@cache
def _environment() -> Any:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

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
    main(Connection(int(sys.argv[1])))
