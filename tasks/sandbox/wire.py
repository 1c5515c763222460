"""What crosses between checker and program: plain values, as JSON with a length before it.

A value arrives as the built-in type it is an instance of, so nothing that the program defines (a method `__eq__`, say)
runs in the checker. Everything else crosses as a number that stands for an object of the other side.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import json
import socket
from collections.abc import Callable, Iterable
from typing import Any

LONGEST = 64 * 1024 * 1024

_KEYS: Any = type({}.keys())
_ITEMS: Any = type({}.items())
_RAW_INT = 1 << 63
_DATES: dict[str, Any] = {"datetime": datetime.datetime, "date": datetime.date, "time": datetime.time}
_ITERABLES: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}


class WireError(ValueError):
    """What came is no message."""


def send(channel: socket.socket, message: Any) -> None:
    """Send one message of JSON data. Raises OSError where nobody listens."""
    data = json.dumps(message).encode()
    channel.sendall(len(data).to_bytes(8, "big") + data)


def receive(channel: socket.socket) -> Any:
    """The next message. Raises EOFError where the other side has ended, WireError where it is none."""
    length = int.from_bytes(_exactly(channel, 8), "big")
    if length > LONGEST:
        raise WireError(f"a message of {length} bytes, more than {LONGEST}")
    try:
        return json.loads(_exactly(channel, length))
    except (ValueError, RecursionError) as error:
        raise WireError(f"not a message: {error}") from None


def encode(value: Any, opaque: Callable[[Any], Any]) -> Any:
    """A value as JSON data; `opaque` gives the data that stands for an object without a value of its own."""
    if value is None or type(value) in (bool, str, float):
        return value
    if isinstance(value, int):
        number = int.__index__(value)
        return number if -_RAW_INT <= number < _RAW_INT else {"int": hex(number)}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__pos__(value)
    if isinstance(value, list):
        return [encode(item, opaque) for item in list.__iter__(value)]
    return _tagged(value, lambda item: encode(item, opaque)) or opaque(value)


def _tagged(value: Any, coded: Callable[[Any], Any]) -> dict[str, Any] | None:
    """The value under the name of its type; None where the type is not among the known ones."""
    if isinstance(value, tuple | set | frozenset):
        kind = next(name for name, one in _ITERABLES.items() if isinstance(value, one))
        return {kind: [coded(item) for item in _ITERABLES[kind].__iter__(value)]}
    if isinstance(value, dict):
        kind = "Counter" if type(value) is collections.Counter else "dict"
        kind = "OrderedDict" if type(value) is collections.OrderedDict else kind
        return {kind: [[coded(key), coded(item)] for key, item in dict.items(value)]}
    if isinstance(value, bytes | bytearray):
        return {"bytes" if isinstance(value, bytes) else "bytearray": bytes(value).decode("latin-1")}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, range):
        return {"range": [coded(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, collections.deque):
        return {"deque": [[coded(item) for item in value], value.maxlen]}
    if isinstance(value, (_KEYS, _ITEMS)):
        return {"keys" if isinstance(value, _KEYS) else "items": [coded(item) for item in value]}
    if isinstance(value, decimal.Decimal):
        return {"Decimal": decimal.Decimal.__str__(value)}
    if isinstance(value, fractions.Fraction):
        return {"Fraction": [coded(value.numerator), coded(value.denominator)]}
    if type(value).__module__ == "datetime":
        return _dated(value)
    if isinstance(value, type) and value.__module__ == "builtins":
        return {"type": value.__name__}
    return {"Ellipsis": None} if value is ... else None


def _dated(value: Any) -> dict[str, Any] | None:
    if type(value) is datetime.timedelta:
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    return next(({name: value.isoformat()} for name, kind in _DATES.items() if type(value) is kind), None)


def decode(data: Any, opaque: Callable[[Any], Any]) -> Any:
    """The value of JSON data; `opaque` gives the object for `{"ref": …}`. Raises WireError."""
    if isinstance(data, list):
        return [decode(item, opaque) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise WireError("not a value")
    [(kind, content)] = data.items()
    try:
        return opaque(content) if kind == "ref" else _built(str(kind), content, lambda item: decode(item, opaque))
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        raise WireError(f"not a value of type {str(kind)[:40]}: {type(error).__name__}") from None


def _built(kind: str, content: Any, value: Callable[[Any], Any]) -> Any:
    import builtins

    if kind == "int":
        return int(content, 16)
    if kind in _ITERABLES:
        return _ITERABLES[kind](value(item) for item in content)
    if kind in ("dict", "Counter", "OrderedDict"):
        pairs = {value(key): value(item) for key, item in content}
        return pairs if kind == "dict" else getattr(collections, kind)(pairs)
    if kind in ("keys", "items"):
        items = [value(item) for item in content]
        return dict.fromkeys(items).keys() if kind == "keys" else dict(items).items()
    if kind in ("bytes", "bytearray"):
        return (bytes if kind == "bytes" else bytearray)(content, "latin-1")
    if kind in ("range", "Fraction"):
        return (range if kind == "range" else fractions.Fraction)(*(value(part) for part in content))
    if kind == "deque":
        return collections.deque(value(content[0]), content[1])
    if kind == "type":
        found = vars(builtins)[content]
        if not isinstance(found, type):
            raise WireError("not a type")
        return found
    if kind in _DATES:
        return _DATES[kind].fromisoformat(content)
    simple: dict[str, Callable[[], Any]] = {
        "complex": lambda: complex(*content), "Decimal": lambda: decimal.Decimal(content),
        "timedelta": lambda: datetime.timedelta(*content), "Ellipsis": lambda: ...,
    }  # fmt: skip
    return simple[kind]()


def mutable(data: Any) -> bool:
    """Whether encoded data is that of an object which a function can change in place."""
    return isinstance(data, list) or (
        isinstance(data, dict) and bool(data.keys() & {"dict", "set", "deque", "bytearray", "Counter", "OrderedDict"})
    )


def change(target: Any, new: Any) -> None:
    """Give a mutable object the content of another of its type."""
    if isinstance(target, list | bytearray):
        target[:] = new
        return
    target.clear()
    extend: Callable[[Iterable[Any]], None] = target.extend if isinstance(target, collections.deque) else target.update
    extend(new)


def _exactly(channel: socket.socket, length: int) -> bytes:
    parts, missing = [], length
    while missing:
        part = channel.recv(min(missing, 1 << 20))
        if not part:
            raise EOFError("the other side has ended")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
