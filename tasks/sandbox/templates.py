"""Jinja templates and expressions of a benchmark's YAML over a dataset's rows, in a process of bounded time and memory.

A YAML or a dataset that somebody shares is not to run commands or to hang: templates run in Jinja's sandbox, in one
process that all rows share and that is replaced when a template takes too long.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.sandbox import wire

SECONDS = 5.0
"""The longest that one template may take for one row."""
_START_SECONDS = 120.0
_WORKER = Path(__file__).with_name("template_worker.py")


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


class _Worker:
    def __init__(self) -> None:
        self.owner = os.getpid()
        self._row: Mapping[str, Any] | None = None
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-B", str(_WORKER), str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # an interrupt is the harness' to handle
            )
        self._channel.settimeout(_START_SECONDS)
        try:
            wire.receive(self._channel)
        except (OSError, EOFError) as error:
            said = self.close()
            raise TemplateFault(f"templates cannot be run: {said or error}") from error
        self._channel.settimeout(SECONDS)

    def ask(self, kind: str, text: str, row: Mapping[str, Any]) -> dict[str, Any]:
        data = None if row is self._row else wire.encode(dict(row), lambda _: None)
        self._row = row
        wire.send(self._channel, [kind, text, data])
        return dict(wire.receive(self._channel))

    def close(self) -> str:
        """End the process; what it complained of."""
        self._process.kill()
        said = self._process.communicate()[1].decode(errors="replace").strip()
        self._channel.close()
        return said.rpartition("\n")[2]


_lock = threading.Lock()
_workers: list[_Worker] = []


def _ask(kind: str, text: str, row: Mapping[str, Any]) -> Any:
    with _lock:
        if not _workers or _workers[0].owner != os.getpid():
            _workers[:] = [_Worker()]
        try:
            answer = _workers[0].ask(kind, text, row)
        except TimeoutError:
            _close()
            raise TemplateFault(f"no end after {SECONDS:g} s") from None
        except (OSError, EOFError, wire.WireError, RecursionError) as error:
            _close()
            raise TemplateFault(f"it ended the process that runs templates: {error}") from None
    if "undefined" in answer:
        raise TemplateFault(answer["undefined"], undefined=True)
    if "error" in answer:
        raise TemplateFault(answer["error"])
    try:
        return wire.decode(answer["value"], lambda _: None)
    except wire.WireError as error:
        raise TemplateFault(str(error)) from None


@atexit.register
def _close() -> None:
    while _workers:
        worker = _workers.pop()
        if worker.owner == os.getpid():
            worker.close()
