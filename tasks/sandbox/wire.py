"""What the checker and the program say to each other: one line of JSON at a time, plain values
only.

A value arrives as the built-in type that it is an instance of, so nothing that the program defines
(`__eq__`, `__len__`) runs in the checker. What is no plain value crosses as a number that stands
for an object of the program.

Tests therefore see differences from running everything in one interpreter: a subclass of a built-in
type arrives as that type, and any other object equals no plain value; arguments cross by value, so
changes in place are not seen and a test that needs one must request a result; StopIteration and its
like arrive as RuntimeError, since inside `map` they would silently end a test's loop. A name that
both the prompt and the program define is the prompt's, except the function under test; a built-in
name is never the program's, unless it names that function (MBPP/126 asks for `sum`)."""

from __future__ import annotations

import builtins
import decimal
import fractions
import json
from collections.abc import Callable
from typing import Any

LONGEST = 64 * 1024 * 1024  # bytes of one message
TYPES = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)}
TYPES["NoneType"] = type(None)
_PLAIN = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, type(None))
"""The types that are values themselves: what the other side makes with one can be sent again."""
_ITERABLES: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_TEXTS: dict[str, Callable[[str], Any]] = {
    "int": lambda text: int(text, 16), "bytes": bytes.fromhex, "complex": complex,
    "type": {kind.__name__: kind for kind in _PLAIN}.__getitem__,
    "Decimal": decimal.Decimal, "Fraction": fractions.Fraction}  # fmt: skip


class WireError(ValueError):
    """What came is no message."""


class Channel:
    """Both ends of a conversation, by their descriptors."""

    def __init__(self, read: str, write: str) -> None:
        self._from, self._to = open(int(read), "rb"), open(int(write), "wb")  # noqa: SIM115  open to the end

    def send(self, message: Any) -> None:
        """Raises OSError where nobody listens."""
        self._to.write(json.dumps(message).encode() + b"\n")
        self._to.flush()

    def receive(self) -> Any:
        """The next message. Raises EOFError where the other side has ended, WireError for what is
        none."""
        if not (line := self._from.readline(LONGEST)):
            raise EOFError
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise WireError(f"not a message: {error}") from None


def encode(value: Any, refer: Callable[[Any], Any]) -> Any:
    """A value as JSON data; `refer` gives the data that stands for an object that is no plain
    value."""
    if value is None or type(value) in (bool, str, float):
        return value
    if isinstance(value, int):
        return {"int": hex(int.__index__(value))}  # JSON's numbers have at most 4,300 digits
    if isinstance(value, str | float):
        return str.__str__(value) if isinstance(value, str) else float.__pos__(value)
    if isinstance(value, list):
        return [encode(item, refer) for item in list.__iter__(value)]
    if isinstance(value, dict):
        return {
            "dict": [[encode(key, refer), encode(item, refer)] for key, item in dict.items(value)]
        }
    for name, kind in _ITERABLES.items():
        if isinstance(value, kind):
            return {name: [encode(item, refer) for item in kind.__iter__(value)]}
    if type(value) is bytes:
        return {"bytes": value.hex()}
    if type(value) in (complex, decimal.Decimal, fractions.Fraction):
        return {type(value).__name__: str(value)}
    return {"type": value.__name__} if type(value) is type and value in _PLAIN else refer(value)


def decode(data: Any, refer: Callable[[Any], Any]) -> Any:
    """The value of JSON data; `refer` gives the object for a number. Raises WireError."""
    if isinstance(data, list):
        return [decode(item, refer) for item in data]
    if not isinstance(data, dict):
        return data
    try:
        [(kind, content)] = data.items()
        if kind in _ITERABLES:
            return _ITERABLES[kind](decode(item, refer) for item in content)
        if kind == "dict":
            return {decode(key, refer): decode(item, refer) for key, item in content}
        return refer(content) if kind == "ref" else _TEXTS[kind](content)
    except (TypeError, ValueError, LookupError, ArithmeticError, SyntaxError) as error:
        raise WireError(f"not a value: {type(error).__name__}") from None
