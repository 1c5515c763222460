"""What every command shares: where it runs, and its one line for an error."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.commands import command
from bench.config.paths import PROJECT


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Python's own answer to Ctrl-C, which a background job lacks."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_error_that_follows_an_interrupt_is_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    """A library may catch KeyboardInterrupt and raise an error of its own."""
    def swallows() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("str") from None

    assert command.run_command(swallows) == 130
    assert capsys.readouterr().err.startswith("interrupted: ")
    assert command.run_command(lambda: pytest.fail("once more") if command._pressed.is_set() else 0) == 0


INTERRUPTED = """
import runpy, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

class Pressing:
    def find_spec(self, name, path=None, target=None):
        if name == pressed:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

pressed = sys.argv.pop(1)
sys.argv[0] = "-m"  # as Python sets it while it looks for the module
sys.meta_path.insert(0, Pressing())
runpy.run_module("bench", run_name="__main__", alter_sys=True)
"""
"""`python -m bench` in which Ctrl-C is pressed when a module is imported."""


@pytest.mark.parametrize("module", ["bench.commands.command", "omegaconf", "torch", "transformers"])
def test_an_early_interrupt_says_a_line_or_nothing(tmp_path: Path, module: str) -> None:
    words = [sys.executable, "-c", INTERRUPTED, module, "n=1", f"store.dir={tmp_path}"]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode in (130, -signal.SIGINT), done.stderr
    assert done.stderr in ("", "interrupted: the same command resumes where this one stopped\n")
