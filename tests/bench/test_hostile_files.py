"""Files that a user is given: broken, nested without end, or larger than they look. Each is one line, soon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.run.console import console
from results.store.errors import one_line, printable

DEEP = "[" * 100_000
STEERING = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eabc\u2066\r\x00\x7f\u2028\ud800"


def only_line(result) -> str:
    """The line of a refused command."""
    [line] = result.err.splitlines()
    assert result.status == 2 and line.startswith("error: ")
    return line


@pytest.mark.parametrize(("name", "text"), [
    ("failure.json", "[]"), ("failure.json", "{}"), ("failure.json", '{"reason": 3}'), ("failure.json", DEEP),
    ("environment.json", "[]"), ("environment.json", "{}"), ("cell.yaml", "- 1"), ("cell.yaml", "[" * 5000)],
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
