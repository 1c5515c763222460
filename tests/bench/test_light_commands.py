"""What takes seconds to import is imported where it is needed: a process says what its commands loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

HEAVY = ("torch", "transformers", "datasets", "pandas", "scipy", "statsmodels", "matplotlib", "wandb")
REFUSED = (
    ["rule.tehta=0.9"], ["rule=mrs"], ["task.foo=1"], ["nn=3"], ["method=no_such_method"], ["task=no_such_task"],
    ["decoding.temperature=-1"], ["draft.length=0"], ["pair=local"], ["summary=yaml"], ["trace=sometimes"],
    ["+no_such_key=1"], ["report=no_such_report"], ["report=mars_table1", "report.no_such_key=1"])
CODE = """
import contextlib, io, json, sys
from bench.__main__ import main
commands, heavy = json.load(sys.stdin)
for given in commands:
    with contextlib.redirect_stdout(io.StringIO()):
        status = main(given)
    print(json.dumps([status, [name for name in heavy if name in sys.modules]]))
"""


def run(*commands: list[str]) -> tuple[list[list], str]:
    """Status and loaded modules after each command of one process, and what it printed on its error stream."""
    done = subprocess.run([sys.executable, "-c", CODE], input=json.dumps([commands, HEAVY]), capture_output=True,
                          text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_refused_command_loads_nothing() -> None:
    """A rule's options are typed by its class, which needs torch and nothing more."""
    found, errors = run(*(["dry_run=true", *given] for given in REFUSED), ["rule.q_mode=foo"])
    assert found == [*([2, []] for _ in REFUSED), [2, ["torch"]]]
    assert len(errors.splitlines()) == len(found), "one line each"


def test_a_list_loads_nothing_and_a_dry_run_torch_alone(tmp_path: Path) -> None:
    folder = f"output.dir={tmp_path}"
    found, errors = run(["report=list", folder], ["report=[mars_fig4,controls]", "dry_run=true", folder])
    assert found == [[0, []], [0, ["torch"]]], errors


def test_the_version_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    from bench.__main__ import main

    assert main(["--version"]) == 0 and capsys.readouterr().out == f"leeway {version('leeway')}\n"
