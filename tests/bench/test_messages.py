"""A wrong command or file is one line, before anything is written; so is an interrupt."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from bench.commands import command
from bench.config.compose import composer, users_folder
from bench.config.paths import PROJECT
from bench.run.console import console
from results.store.errors import one_line, printable
from tests.helpers.commands import run
from tests.helpers.refusals import MAKERS, NAMED, TEXTS, Files, Wrong, rows

PREFIX = {1: "failed: ", 2: "error: "}


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("named"))


@pytest.mark.parametrize("wrong", rows(), ids=lambda wrong: wrong.words[:80])
def test_a_wrong_command(wrong: Wrong, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench"])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    output = tmp_path / "output"
    ended = run(*wrong.given(files, output))
    [line] = ended.err.splitlines()
    assert ended.status == wrong.status and line.startswith(PREFIX[wrong.status])
    assert line.isprintable() and len(line) <= 1500
    assert all(files.filled(text) in line for text in wrong.says), line
    assert not files.marker.exists(), "a file of the user ran code"
    samples = [path for path in output.glob("store/*/samples.jsonl") if b"output_ids" in path.read_bytes()]
    assert not samples and not (wrong.known == "composed" and output.exists()), "it is known before anything is written"


def test_rows_differ_and_name_every_file() -> None:
    every = list(rows())
    assert len({row.words for row in every}) == len(every) and all(row.says for row in every)
    assert {name for row in every for name in NAMED.findall(row.words)} == {*TEXTS, *MAKERS}


def test_help_needs_nothing(command) -> None:
    result = command(flags=["--help"])
    assert result.status == 0 and not result.err
    for word in ("pair.target=", "draft.length", "rule.theta", "summary=", "+sweep=", "report=", "mars_released"):
        assert word in result.out
    for option in ("decoding.top_p=1.0", "engine.device=auto", "judge.retries=3", "draft.length=5", "pair.nodes=60"):
        assert option in result.out, "keys and defaults are those of conf/"


def test_dry_run_shows_and_does_not_run(command, tmp_path: Path) -> None:
    result = command("method=mars", "rule.theta=0.85", "dry_run=true")
    assert result.status == 0 and "1 point, 0 complete; 3 prompts" in result.out, result.out
    assert "mars mini_gsm" in result.out
    assert not list(tmp_path.iterdir())
    several = command("method=sps,pld", "dry_run=true", flags=["-m"])
    assert several.status == 0 and "method=sps" in several.out and "method=pld" in several.out
    assert not list(tmp_path.iterdir())


def test_a_warning_that_many_cells_give_is_shown_once() -> None:
    code = ("import logging; from results.store.errors import log_to_stderr; log_to_stderr(); "
            "[logging.getLogger('methods').warning('tau = %s', x) for x in (2, 2, 3)]")
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["WARNING: tau = 2", "WARNING: tau = 3"]


@pytest.mark.parametrize(("argv", "expected"), [
    (["--rule.theta=0.9", "method=mars"], ["rule.theta=0.9", "method=mars"]), (["--seed=3"], ["seed=3"]),
    (["seed=3", "--config-dir=FOLDER", "n=2"], ["seed=3", "n=2"]), (["-m", "n=2"], ["n=2"])])
def test_flags_and_overrides_come_in_any_order(argv: list[str], expected: list[str], tmp_path: Path) -> None:
    """An agent of W&B's sweeps gives each override as a flag."""
    words = [word.replace("FOLDER", str(tmp_path)) for word in argv]
    with composer(users_folder(words)) as made:
        assert made.command(words).overrides == expected


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


@pytest.mark.parametrize("module", ["bench.commands.command", "torch"])
def test_an_early_interrupt_says_a_line_or_nothing(tmp_path: Path, module: str) -> None:
    words = [sys.executable, "-c", INTERRUPTED, module, "n=1", f"store.dir={tmp_path}"]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode in (130, -signal.SIGINT), done.stderr
    assert done.stderr in ("", "interrupted: the same command resumes where this one stopped\n")


DEEP = "[" * 100_000
STEERING = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eabc\u2066\r\x00\x7f\u2028\ud800"


def only_line(result) -> str:
    """The line of a refused command."""
    [line] = result.err.splitlines()
    assert result.status == 2 and line.startswith("error: ")
    return line


@pytest.mark.parametrize(("name", "text"), [
    ("failure.json", '{"reason": 3}'), ("environment.json", DEEP), ("cell.yaml", "- 1"), ("cell.yaml", "[" * 3500)],
    ids=lambda value: value[:16])
def test_files_of_the_store_in_another_shape(command, name: str, text: str) -> None:
    file = command("method=pld", "n=1").cell.path / name
    file.write_text(text)
    line = only_line(command("method=pld", "n=1"))
    assert line.startswith(f"error: {file} is no") and "remove it to write it again" in line
    file.unlink()
    assert command("method=pld", "n=1").status == 0
    assert name in ("failure.json", "environment.json") or file.exists(), "it is written again"


def test_nothing_printed_steers_the_terminal(command, tmp_path: Path) -> None:
    assert printable("tab\tline\nτ ≥ 1 “é” 漢") == "tab\tline\nτ ≥ 1 “é” 漢"
    assert one_line(ValueError(STEERING)) == printable(" ".join(STEERING.split())) and "\\x1b" in one_line(STEERING)
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"id": STEERING[:-1], "messages": [{"role": "user", "content": "apples " * 600}]}))
    result = command("task=prompts", f"task.path={file}", "method=pld,ar", flags=["-m"])
    assert result.status == 1 and "prompts failed; first" in result.err
    assert printable(result.out) == result.out and printable(result.err) == result.err


def test_the_console_prints_brackets_and_colons_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(STEERING, "[/bold] :smile:")
    printed = capsys.readouterr().out
    assert printable(printed) == printed and "[/bold] :smile:" in printed and "\\x1b[2J" in printed
