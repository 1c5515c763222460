"""What every command shares: where it runs, and its one line for an error."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.commands import command
from bench.config.compose import composer
from bench.config.errors import ConfigError
from bench.config.paths import PROJECT


def test_a_missing_conf_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "CONF", tmp_path / "conf")
    assert command.run_command(lambda: pytest.fail("it must not run")) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path / 'conf'}: no such folder; Leeway is run from its checkout")


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


def restore_interrupts() -> None:
    """A shell's background jobs, this test among them, start with interrupts ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_an_early_interrupt_says_a_line_or_nothing(tmp_path: Path) -> None:
    """Before the project's first line Python itself starts: what it then prints names no file of bench."""
    silent = 0
    for delay in (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.4, 0.8, 1.6):
        process = subprocess.Popen([sys.executable, "-m", "bench", "n=1", f"store.dir={tmp_path}"], cwd=PROJECT,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=restore_interrupts)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=60)
        by_python = "KeyboardInterrupt" in printed or "Fatal Python error" in printed
        elsewhere = printed.replace(str(PROJECT / "bench" / "__init__.py"), "")  # whose first lines set the handler
        if by_python and str(PROJECT / "bench") not in elsewhere:
            continue
        silent += 1
        assert process.returncode in (130, -signal.SIGINT), f"after {delay} s: {printed}"
        assert printed in ("", "interrupted: the same command resumes where this one stopped\n"), f"after {delay} s"
    assert silent >= 3


def test_a_sweep_holds_rules_without_the_swept_option_once() -> None:
    with composer() as hydra:
        points = hydra.command(["drafter=model", "rule=lossless,mars", "rule.theta=0.8,0.9"], multirun=True).points
        named = [(point.config["rule"]["name"], point.config["rule"].get("theta")) for point in points]
        assert named == [("lossless", None), ("mars", 0.8), ("mars", 0.9)]
        with pytest.raises(ConfigError, match=r"^rule\.thetta: unknown key"):
            hydra.command(["drafter=model", "rule=lossless,mars", "rule.thetta=0.8,0.9"], multirun=True)
