"""The two processes of a run, each in its own sandbox: `program` runs the program, `checker` holds
the tests.

The program's process knows neither the tests nor what they expect, and holds nothing but its
channel to the checker: whatever the program does to it, all it can give is wrong values. The
checker sees it through `Remote`: a call crosses to the other process by value, and its result comes
back as plain values, which the tests compare here."""

from __future__ import annotations

import contextlib
import decimal
import fractions
import importlib
import io
import json
import os
import resource
import sys
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from pathlib import Path
from types import BuiltinMethodType, CodeType, MethodWrapperType, ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tasks.sandbox import wire

PROGRAM, TESTS, NOBODY = "<program>", "<tests>", 65534
LONGEST_ERROR = 1000  # characters
LIBRARIES = {  # what tests may use without an import, because programs often import it
    "bisect",
    "cmath",
    "collections",
    "copy",
    "datetime",
    "decimal",
    "fractions",
    "functools",
    "heapq",
    "json",
    "itertools",
    "math",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "sys",
    "typing",
}
# they would end a loop of the tests without a word
_SILENT = (StopIteration, StopAsyncIteration, GeneratorExit)


def described(error: BaseException, file: str, source: str) -> tuple[str, str]:
    """The text of an exception, whatever its class does; and `ValueError: text (line 2: …)`, with
    the innermost line of `file` that it passed through."""
    text, lines, number, trace = "", source.split("\n"), 0, error.__traceback__
    with contextlib.suppress(Exception):
        text = str(error)[:LONGEST_ERROR]
    while trace:
        number = trace.tb_lineno if trace.tb_frame.f_code.co_filename == file else number
        trace = trace.tb_next
    place = f"(line {number}: {lines[number - 1]})" if 0 < number <= len(lines) else ""
    line = f"{type(error).__name__}{': ' if text else ''}{text} {place}"
    return text, " ".join(line.split())[:LONGEST_ERROR]


class ProgramServer:  # in the program's process: does what the checker asks for
    def __init__(self) -> None:
        self.names, self.source, self._objects = {"__name__": "__main__"}, "", list[Any]()
        self._requests: dict[str, Any] = {
            "define": self.define,
            "names": self.defined,
            "script": self.script,
            "items": list,
            "get": getattr,
            "set": setattr,
            "call": lambda function, arguments, named: function(*arguments, **named),
        }

    def answer(self, kind: str, operands: list[Any]) -> dict[str, Any]:
        try:
            arguments = [wire.decode(operand, self._referred) for operand in operands]
            return {"value": wire.encode(self._requests[kind](*arguments), self._reference)}
        except BaseException as error:
            base = next(
                ancestor.__name__
                for ancestor in type(error).__mro__
                if ancestor in wire.TYPES.values()
            )
            return {"error": base, "described": described(error, PROGRAM, self.source)}

    def define(self, prelude: str, source: str) -> None:
        exec(compile(prelude, "<prelude>", "exec"), self.names)
        self.source = source
        exec(compile(source, PROGRAM, "exec"), self.names)

    def defined(self, wanted: list[str]) -> dict[str, Any]:
        return {name: self.names[name] for name in wanted if name in self.names}

    def script(self, source: str, typed: str) -> str:
        """Run another program with `typed` as its standard input; what it prints."""
        self.source, shown = source, io.StringIO()
        sys.stdin = io.TextIOWrapper(io.BytesIO(typed.encode()))
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            exec(compile(source, PROGRAM, "exec"), {"__name__": "__main__"})
        return shown.getvalue()

    def _reference(self, value: Any) -> dict[str, int]:
        self._objects.append(value)
        return {"ref": len(self._objects) - 1}

    def _referred(self, key: int | str) -> Any:
        return wire.TYPES[key] if isinstance(key, str) else self._objects[key]


class NoAnswer(BaseException):
    """No `except Exception` of a test may hide it. Its arguments are the state, `ended` where the
    program's process has ended, `failed` where it sends what is no answer, `unsupported` where the
    tests ask for the impossible; and why."""


class Program:
    """In the checker: the program's process."""

    def __init__(self, channel: wire.Channel) -> None:
        self._channel = channel
        self.fault: NoAnswer | None = None

    def ask(self, kind: str, *operands: Any) -> Any:
        """The answer to a request. Raises what the program raises; NoAnswer."""
        sent = [wire.encode(operand, self._reference) for operand in operands]
        try:
            self._channel.send([kind, sent])
            answer = self._channel.receive()
            if "error" not in answer:
                return wire.decode(answer["value"], lambda number: Remote(self, number))
            error = _exception(answer)
        except (OSError, EOFError):
            raise self._stop("ended", "") from None
        except (
            wire.WireError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
            MemoryError,
        ) as fault:
            raise self._stop("failed", f"the program's process gives no answer: {fault}") from None
        raise error

    def _reference(self, value: Any) -> Any:
        if isinstance(value, Remote):
            return {"ref": object.__getattribute__(value, "_number")}
        if isinstance(value, KeysView | ValuesView | ItemsView):
            return wire.encode(list(value), self._reference)
        if isinstance(value, type) and wire.TYPES.get(value.__name__) is value:
            return {"ref": value.__name__}
        raise self._stop(
            "failed" if _is_of_a_result(value) else "unsupported",
            f"a value of type {type(value).__name__} cannot be handed to the program",
        )

    def _stop(self, state: str, text: str) -> NoAnswer:
        self.fault = NoAnswer(state, text)
        return self.fault


def _is_of_a_result(value: Any) -> bool:
    """Whether tests have it from what the program gave: its exception, the method or the class of a
    result. Another program may give what can be handed back."""
    if isinstance(value, BaseException):
        return hasattr(value, "line")
    if isinstance(value, BuiltinMethodType | MethodWrapperType):
        return not isinstance(value.__self__, ModuleType)
    return any(value is kind for kind in (Remote, decimal.Decimal, fractions.Fraction))


class Remote:
    """In the checker: an object of the program. It equals nothing but itself, whatever its class
    says."""

    __slots__ = ("_number", "_program")

    def __init__(self, program: Program, number: int) -> None:
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._program.ask("call", self, list(arguments), named)

    def __getattr__(self, name: str) -> Any:
        return self._program.ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._program.ask("set", self, name, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._program.ask("items", self))


def verdict(program: Program, job: dict[str, Any]) -> tuple[str, str | None]:
    """Define the program and run the tests: `passed` when their last line was reached, `failed`
    with the error in one line, or what a NoAnswer says."""
    tests = job["tests"]
    names = {
        "__name__": "__main__",
        "run_script": lambda *arguments: program.ask("script", *arguments),
    }
    state, error = "passed", None
    try:
        program.ask("define", job["prelude"], job["program"])
        exec(compile(job["prelude"], "<prelude>", "exec"), names)
        names.pop(job["entry_point"], None)  # the prompt's has no body
        names |= _borrowed(program, tests, set(names), job["entry_point"])
        exec(compile(tests, TESTS, "exec"), names)
    except BaseException as raised:
        state, error = "failed", getattr(raised, "line", None) or described(raised, TESTS, tests)[1]
    # whatever the tests made of it
    return (state, error) if program.fault is None else program.fault.args


def _borrowed(
    program: Program, tests: str, defined: set[str], entry_point: str | None
) -> dict[str, Any]:
    """What the tests use and neither the prelude nor Python has: libraries, and names of the
    program. A built-in name is the program's only as the entry point: none replaces what
    compares."""
    used, entry = _names(compile(tests, TESTS, "exec")) - defined, {entry_point} - {None}
    libraries = {name: importlib.import_module(name) for name in used & LIBRARIES}
    wanted = (used - LIBRARIES - {"__builtins__", *dir(__builtins__)}) | entry
    provided = program.ask("names", sorted(wanted))
    return libraries | {name: provided[name] for name in wanted & provided.keys()}


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(
        *(_names(inner) for inner in code.co_consts if isinstance(inner, CodeType))
    )


def _exception(answer: dict[str, Any]) -> Any:
    """The exception of a program, as an instance of the built-in class it comes from."""
    base, (text, line) = wire.TYPES[answer["error"]], answer["described"]
    error: Any = RuntimeError() if issubclass(base, _SILENT) else base.__new__(base)
    error.args, error.line = (str(text),), str(line)
    return error


def main(role: str, settings: str, read: str, write: str, told: str = "") -> None:
    """`settings`: limits by the kernel's names, and whether root becomes nobody, for no limit on
    processes holds for root; `read` and `write`: descriptors of the channel; `told`: that of the
    verdict. The checker's input is the job."""
    config, channel = json.loads(settings), wire.Channel(read, write)
    for name, most in config["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    if config["drop_root"]:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    os.dup2(1, 2)  # until here it was the harness' file of complaints
    del sys.path[0]
    if role == "program":
        server = ProgramServer()
        channel.send("ready")
        while True:
            channel.send(server.answer(*channel.receive()))
    job = json.load(sys.stdin)
    channel.receive()
    report = {"nonce": job["nonce"], "state": "started", "error": None}
    os.write(int(told), json.dumps(report).encode())
    report["state"], error = verdict(Program(channel), job)
    report["error"] = error and error[:LONGEST_ERROR]
    os.write(int(told), json.dumps(report).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)
