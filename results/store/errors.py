"""The errors of the store, and what a record, a message and the error stream say of an exception:
one line.

What is written or said shows no secret: not the value of an environment variable whose name sounds
like a secret, and not the user, the password or the query of a URL."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn
from urllib.parse import quote

from pydantic import ValidationError


class StoreError(RuntimeError):
    """The store cannot be read or written. The message is one line: which file, what is wrong, how
    to fix it."""


class Locked(StoreError):
    """Another process is writing the cell."""


def first_fault(error: ValidationError) -> str:
    """The first fault that pydantic found, in one line: `baseline.score: Input should be a valid
    number`."""
    fault = error.errors(include_url=False)[0]
    where = ".".join(map(str, fault["loc"]))
    return " ".join((f"{where}: {fault['msg']}" if where else fault["msg"]).split())


HIDDEN = "(hidden)"
SECRET = re.compile(
    r"key|(?<![a-z])token(?![a-z])|hub_tokens|secret|passw|passphrase|_pwd|credential|auth|jwt"
    r"|(?<![a-z])pat(?![a-z])|cookie|signature",
    re.IGNORECASE,
)
"""What a name holds that sounds like a secret."""
SHORTEST_SECRET = 8
"""Characters of a secret variable's value; a text may hold a shorter one by chance (`true`,
`1`)."""
PUBLIC = ("api-version", "version", "revision", "ref")
"""Parts of a URL's query that are no secrets."""
_URL = re.compile(
    r"[a-z][a-z0-9+.-]+:/{1,2}[^\s\"'<>]+?(?=[.,:;)\]]*(?:[\s\"'<>]|$))", re.IGNORECASE
)
_USER = re.compile(r"(:/{1,2})(?:[^/?#]*|[^/?#:@]*:(?!\d+(?:[/?#]|$)).*)@")
"""A path has one slash of the two. The second form: a password with a slash that was not quoted,
told from a port by its digits."""
_QUERY = re.compile(r"([?&;#])([^=&;#?/]+)=([^&;#]*)")


def redacted(text: str) -> str:
    """The text with `(hidden)` in place of secrets."""
    values = (os.environ[name].strip() for name in os.environ if SECRET.search(name))
    secrets = set(filter(None, values))
    for value in sorted(secrets, key=len, reverse=True):  # one may hold another
        if len(value) >= SHORTEST_SECRET and not os.path.exists(
            value
        ):  # the file of a key is no key
            text = _without(text, value)
    return (
        _URL.sub(lambda url: _QUERY.sub(_part, _USER.sub(rf"\1{HIDDEN}@", url[0])), text)
        if ":/" in text
        else text
    )


def redacted_word(word: str) -> str:
    """A word of a command line, as `redacted`; the value of an option whose name sounds like a
    secret is hidden."""
    name, separator, _ = word.partition("=")
    return (
        f"{name}={HIDDEN}"
        if separator and ":/" not in name and SECRET.search(name)
        else redacted(word)
    )


def redacted_plain(plain: Any) -> Any:
    """Plain data, each text of it as `redacted`."""
    if isinstance(plain, Mapping):
        return {key: redacted_plain(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [redacted_plain(value) for value in plain]
    return redacted(plain) if isinstance(plain, str) else plain


def _without(text: str, value: str) -> str:
    """Also without the value in one line, quoted for a URL, and as JSON and Python write it."""
    for form in {
        value,
        " ".join(value.split()),
        quote(value, safe=""),
        json.dumps(value)[1:-1],
        repr(value)[1:-1],
    }:
        text = text.replace(form, HIDDEN)
    return text


def _part(match: re.Match[str]) -> str:
    known = match[2].lower() in PUBLIC or HIDDEN.startswith(match[3])  # none, or hidden before
    return match[0] if known else f"{match[1]}{match[2]}={HIDDEN}"


USAGE_ERROR = 2
"""Exit status of a wrong command."""
OWN_PACKAGES = ("bench", "methods", "models", "tasks", "results", "plots")
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but tab and line feed, line separators, marks of the writing direction, lone
surrogates."""


def printable(text: str) -> str:
    """The text with what would steer a terminal, or turn a line around, written out: an escape
    becomes `\\x1b`."""
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(error: object) -> str:
    """The text of an exception (or of anything), printable, without its line breaks and without
    secrets; an exception without text gives its type."""
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    return printable(redacted(" ".join(str(text).split()))) or type(error).__name__


def is_own(error: BaseException) -> bool:
    """Whether the project itself defines this kind of error: its text then says all that is needed,
    in one line."""
    return type(error).__module__.partition(".")[0] in OWN_PACKAGES


def format_exception(error: BaseException) -> str:
    """One line for a record: the kind of an unexpected error, its text, and the line of code it
    came from."""
    text = one_line(error)
    if is_own(error):
        return text
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{place}"


class Arguments(argparse.ArgumentParser):
    """A command's own flags; a wrong one is one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {printable(one_line(message))}; see --help", file=sys.stderr)
        sys.exit(USAGE_ERROR)


class _Formatter(logging.Formatter):
    """`WARNING: text`, without secrets and what would steer the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(redacted(super().format(record)))


class _Once(logging.Filter):
    """Each text once: many cells may share a cause."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        first = text not in self._shown
        self._shown.add(text)
        return first


def _print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    print(
        redacted("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr
    )


def log_to_stderr() -> None:
    """Let warnings of this process go to stderr, each text once, where nothing has set up logging
    before, and the traceback of an error that ends the process, both without secrets."""
    sys.excepthook = _print_traceback
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_Once())
    handler.setFormatter(_Formatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
