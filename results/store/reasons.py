"""Why something failed, in one line: what a record, a message and the error stream say of an exception."""

from __future__ import annotations

import argparse
import logging
import re
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from results.store.redaction import redacted

USAGE_ERROR = 2
"""Exit status of a wrong command."""
OWN_PACKAGES = ("bench", "methods", "tasks", "results", "plots")
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line feed, line separators, marks of the writing direction, lone surrogates."""


def printable(text: str) -> str:
    """The text with what would steer a terminal, or turn a line around, written out: an escape becomes `\\x1b`."""
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(error: object) -> str:
    """The text of an exception (or of anything), printable, without its line breaks and without secrets; an exception
    without text gives its type."""
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    return printable(redacted(" ".join(str(text).split()))) or type(error).__name__


def is_own(error: BaseException) -> bool:
    """Whether the project itself defines this kind of error: its text then says all that is needed, in one line."""
    return type(error).__module__.partition(".")[0] in OWN_PACKAGES


def format_exception(error: BaseException) -> str:
    """One line for a record: the kind of an unexpected error, its text, and the line of code it came from."""
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


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    print(redacted("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)


def log_to_stderr() -> None:
    """Let warnings of this process go to stderr, each text once, where nothing has set up logging before, and the
    traceback of an error that ends the process, both without secrets."""
    sys.excepthook = _print_traceback
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_Once())
    handler.setFormatter(_Formatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
