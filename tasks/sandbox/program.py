"""The process that runs the program: defines it, then does what the checker asks for.

It knows neither the tests nor what they expect, and holds no descriptor but its own output and the channel to the
checker. Whatever the program does to this process, all it can do to the verdict is to give wrong values.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import operator
import os
import socket
import sys
import types
from collections.abc import Callable
from typing import Any

from tasks.sandbox import wire

PROGRAM = "<program>"
LIBRARIES = frozenset({
    "bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "itertools",
    "math", "operator", "random", "re", "statistics", "string", "typing",
})  # fmt: skip
"""Modules that the checker takes from its own standard library where the program has imported a name of theirs."""

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "getattr": getattr, "setattr": setattr, "iter": iter, "next": next, "len": len, "bool": bool, "str": str,
    "repr": repr, "hash": hash, "getitem": operator.getitem, "setitem": operator.setitem,
    "contains": operator.contains, "eq": operator.eq, "lt": operator.lt,
}  # fmt: skip


def serve(channel: socket.socket) -> None:
    """Answer the checker's requests until it ends the conversation."""
    server = _Server()
    while True:
        request = wire.receive(channel)
        if request[0] == "end":
            with contextlib.suppress(Exception):  # what was printed last is worth showing, not worth failing for
                sys.stdout.flush()
            os._exit(0)
        wire.send(channel, server.answer(*request))


class _Server:
    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.source = ""
        self.objects: list[Any] = []

    def answer(self, kind: str, *content: Any) -> dict[str, Any]:
        try:
            return {"value": getattr(self, f"do_{kind}")(*content)}
        except BaseException as error:
            return {"error": self._described(error)}

    def do_define(self, prelude: str, source: str) -> None:
        """Run the prelude, then the program to its last line."""
        exec(compile(prelude, "<prelude>", "exec"), self.names)
        self.source = source
        exec(compile(source, PROGRAM, "exec"), self.names)
        sys.stdout.flush()

    def do_names(self, wanted: list[str]) -> dict[str, Any]:
        """Those of the wanted names that the program has, with their values."""
        return {name: self._shared(name, self.names[name]) for name in wanted if name in self.names}

    def do_script(self, source: str, given: str) -> str:
        """Run another program with `given` as its standard input; what it prints."""
        shown = io.StringIO()
        self.source = source
        before = sys.stdin, sys.stdout
        sys.stdin, sys.stdout = io.TextIOWrapper(io.BytesIO(given.encode())), shown
        try:
            with contextlib.suppress(SystemExit):
                exec(compile(source, PROGRAM, "exec"), {"__name__": "__main__"})
        finally:
            sys.stdin, sys.stdout = before
        return shown.getvalue()

    def do_call(self, function: Any, given: list[Any], named: dict[str, Any]) -> dict[str, Any]:
        """The result, and the arguments that the function has changed in place."""
        arguments: dict[Any, Any] = {**dict(enumerate(given)), **named}
        values = {place: self._decoded(data) for place, data in arguments.items()}
        result = self._decoded(function)(
            *(values[place] for place in range(len(given))), **{name: values[name] for name in named}
        )
        after = {place: self._encoded(values[place]) for place, data in arguments.items() if wire.mutable(data)}
        changed = [[place, data] for place, data in after.items() if data != arguments[place]]
        return {"result": self._encoded(result), "changed": changed}

    def do_operate(self, operation: str, *operands: Any) -> Any:
        return self._encoded(_OPERATIONS[operation](*map(self._decoded, operands)))

    def _encoded(self, value: Any) -> Any:
        return wire.encode(value, self._reference)

    def _decoded(self, data: Any) -> Any:
        return wire.decode(data, self.objects.__getitem__)

    def _reference(self, value: Any) -> dict[str, int]:
        self.objects.append(value)
        return {"ref": len(self.objects) - 1}

    def _shared(self, wanted: str, value: Any) -> Any:
        """A value of the program's namespace; a library, or what one has under this name, by its name."""
        if isinstance(value, types.ModuleType):
            own = wanted in LIBRARIES and value is sys.modules.get(wanted)
            return {"library": [wanted, None]} if own else self._encoded(value)
        module = getattr(value, "__module__", None)
        if module in LIBRARIES and getattr(sys.modules.get(module), wanted, None) is value:
            return {"library": [module, wanted]}
        return self._encoded(value)

    def _described(self, error: BaseException) -> dict[str, Any]:
        """The exception for the checker: its own name, the built-in class it comes from, its arguments, its place."""
        kind = type(error)
        base = next(one.__name__ for one in kind.__mro__ if getattr(builtins, one.__name__, None) is one)
        try:
            message = str(error)
        except Exception:
            message = ""
        arguments = [arg if isinstance(arg, str | int | float) else str(message) for arg in error.args[:4]]
        encoded = [self._encoded(argument) for argument in arguments]
        return {"name": kind.__name__, "base": base, "arguments": encoded, "message": message[:2000],
                "place": place(error, PROGRAM, self.source)}  # fmt: skip


def place(error: BaseException, file: str, source: str) -> str:
    """` (line 2: …)` for the innermost line of `file` that the error passed through; empty where there is none."""
    lines = source.split("\n")
    number, trace = 0, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == file:
            number = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {number}: {lines[number - 1].strip()})" if 0 < number <= len(lines) else ""
