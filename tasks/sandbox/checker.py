"""The process that holds the tests: it asks the program's process for results and compares them itself.

What the program defines is seen through `Remote`: calls and attribute access cross to the other process, results come
back as plain values. The verdict is this process' alone.
"""

from __future__ import annotations

import builtins
import importlib
import socket
import symtable
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

from tasks.sandbox import wire
from tasks.sandbox.program import LIBRARIES, place

TESTS = "<tests>"


class Ended(BaseException):
    """The program's process has ended. No `except Exception` of a test may hide it."""


class Garbled(Ended):
    """The program's process sends what is no answer."""


class Unsupported(BaseException):
    """The tests do what two processes cannot: the benchmark's fault, not the program's."""


class Program:
    """The program's process, seen from the tests."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.fault: Ended | Unsupported | None = None

    def define(self, prelude: str, source: str) -> None:
        """Run the program to its last line. Raises what it raises."""
        self._ask("define", prelude, source)

    def script(self, source: str, given: str) -> str:
        """Run a script with `given` as its standard input; what it prints. Raises what it raises."""
        shown = self._ask("script", source, given)
        return shown if isinstance(shown, str) else ""

    def names(self, wanted: Collection[str]) -> dict[str, Any]:
        """Those of the wanted names that the program has defined."""
        shared = self._ask("names", sorted(wanted))
        return {name: self._named(name, data) for name, data in shared.items() if name in wanted}

    def call(self, function: Remote, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a function of the program; arguments that it changes in place are changed here as well."""
        sent = [self._encoded(value) for value in given], {name: self._encoded(value) for name, value in named.items()}
        answer = self._ask("call", self._encoded(function), *sent)
        try:
            for where, data in answer["changed"]:
                wire.change(given[where] if isinstance(where, int) else named[where], self._decoded(data))
            return self._decoded(answer["result"])
        except (LookupError, TypeError, AttributeError) as error:
            raise self._garbled(f"not an answer: {error}") from None

    def operate(self, operation: str, *operands: Any) -> Any:
        """The result of a built-in function or operator on objects of the program."""
        return self._decoded(self._ask("operate", operation, *map(self._encoded, operands)))

    def end(self) -> None:
        """Let the program's process print what it holds back, and give it a second to end."""
        wire.send(self._channel, ["end"])
        self._channel.settimeout(1.0)
        with suppress(OSError):
            self._channel.recv(1)

    def _ask(self, *request: Any) -> Any:
        try:
            wire.send(self._channel, request)
            answer = wire.receive(self._channel)
            if "error" not in answer:
                return answer["value"]
            error = _exception(answer["error"])
        except (OSError, EOFError) as fault:
            self.fault = Ended(str(fault))
            raise self.fault from None
        except (wire.WireError, LookupError, TypeError, AttributeError, MemoryError) as fault:
            raise self._garbled(str(fault)) from None
        raise error

    def _garbled(self, text: str) -> Garbled:
        self.fault = Garbled(text)
        return self.fault

    def _named(self, wanted: str, data: Any) -> Any:
        """What a name of the program stands for; a library, or what one has under this name, is the checker's own."""
        if not isinstance(data, dict) or "library" not in data:
            return self._decoded(data)
        module, name = data["library"]
        if module not in LIBRARIES or wanted != (name or module):
            raise self._garbled("not a library")
        library = importlib.import_module(module)
        return library if name is None else getattr(library, wanted)

    def _encoded(self, value: Any) -> Any:
        return wire.encode(value, self._reference)

    def _decoded(self, data: Any) -> Any:
        try:
            return wire.decode(data, lambda number: Remote(self, number))
        except (wire.WireError, RecursionError) as error:
            raise self._garbled(str(error)) from None

    def _reference(self, value: Any) -> Any:
        if isinstance(value, Remote):
            return {"ref": object.__getattribute__(value, "_number")}
        self.fault = Unsupported(f"a value of type {type(value).__name__} cannot be handed to the program")
        raise self.fault


class Remote:
    """An object of the program's process. It equals no plain value, whatever its class says."""

    __slots__ = ("_number", "_program")

    def __init__(self, program: Program, number: int) -> None:
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_number", number)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._program.call(self, given, named)

    def __getattr__(self, name: str) -> Any:
        return self._program.operate("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._program.operate("setattr", self, name, value)

    def __iter__(self) -> Iterator[Any]:
        return self._program.operate("iter", self)

    def __next__(self) -> Any:
        return self._program.operate("next", self)

    def __len__(self) -> int:
        return self._program.operate("len", self)

    def __bool__(self) -> bool:
        return self._program.operate("bool", self)

    def __str__(self) -> str:
        return self._program.operate("str", self)

    def __repr__(self) -> str:
        return self._program.operate("repr", self)

    def __hash__(self) -> int:
        return self._program.operate("hash", self)

    def __getitem__(self, key: Any) -> Any:
        return self._program.operate("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._program.operate("setitem", self, key, value)

    def __contains__(self, value: Any) -> bool:
        return self._program.operate("contains", self, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and self._program.operate("eq", self, other) is True

    def __lt__(self, other: object) -> bool:
        return isinstance(other, Remote) and self._program.operate("lt", self, other) is True


def check(program: Program, prelude: str, source: str, tests: str, entry_point: str | None) -> str | None:
    """Define the program and run the tests; the error in one line, None when the tests' last line was reached.

    Raises Ended when the program's process has ended, Unsupported when the tests ask for the impossible."""
    try:
        program.define(prelude, source)
        names: dict[str, Any] = {"__name__": "__main__", "run_script": program.script}
        exec(compile(prelude, "<prelude>", "exec"), names)
        names |= _from_program(program, tests, names, entry_point)
        exec(compile(tests, TESTS, "exec"), names)
        error = None
    except (Ended, Unsupported):
        raise
    except BaseException as raised:
        error = one_line(raised, tests)
    if program.fault is not None:  # a bare `except:` of the tests went over it
        raise program.fault
    return error


def one_line(error: BaseException, tests: str) -> str:
    """`ValueError: message (line 2: …)`; the line is the program's where the error comes from there."""
    name, message, where = getattr(error, "from_program", None) or (type(error).__name__, str(error), None)
    text = f"{name}: {message}" if message else name
    return " ".join((text + (place(error, TESTS, tests) if where is None else where)).split())[:300]


def _from_program(program: Program, tests: str, names: dict[str, Any], entry_point: str | None) -> dict[str, Any]:
    """What the tests use and neither they, nor the prelude, nor Python has. A built-in name comes from the program only
    where there is no other (MBPP/126 asks for a function `sum`), so that no program replaces what tests compare with.
    """
    used = _global_names(symtable.symtable(tests, TESTS, "exec"))
    entry = {entry_point} if entry_point else set()
    found = program.names((used - names.keys() - vars(builtins).keys()) | entry)
    return found or program.names(used & vars(builtins).keys())


def _global_names(table: symtable.SymbolTable) -> set[str]:
    top = table.get_type() == "module"
    own = {symbol.get_name() for symbol in table.get_symbols()
           if symbol.is_referenced() and (top or symbol.is_global())}
    return own.union(*(_global_names(child) for child in table.get_children()))


def _exception(described: dict[str, Any]) -> BaseException:
    """The exception of a program, as an instance of the built-in class it comes from."""
    base: type[BaseException] = vars(builtins)[described["base"]]
    if not issubclass(base, BaseException):
        raise TypeError("not an exception")
    name, message, where = (str(described[key]) for key in ("name", "message", "place"))
    kind: type[BaseException] = base if name == base.__name__ else type(name, (base,), {})
    error = kind.__new__(kind)
    error.args = tuple(wire.decode(one, lambda _: None) for one in described["arguments"])
    error.from_program = (name, message, where)  # type: ignore[attr-defined]  # read by one_line
    return error
