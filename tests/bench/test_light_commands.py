"""Composing and refusing a command imports no torch, which takes seconds."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

REFUSED = (
    ["rule.tehta=0.9"], ["method=no_such_method"], ["task=no_such_task"], ["decoding.temperature=-1"],
    ["draft.length=0"], ["pair=local"], ["summary=yaml"], ["trace=sometimes"], ["+no_such_key=1"],
    ["report=no_such_report"], ["report=mars_table1", "report.no_such_key=1"],
)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_refused_command_imports_no_torch() -> None:
    done = run("import sys\n"
               "from bench.__main__ import main\n"
               f"for given in {REFUSED!r}:\n"
               "    print(main(['dry_run=true', *given]), 'torch' in sys.modules, given)\n")
    assert done.stdout.splitlines() == [f"2 False {given!r}" for given in REFUSED], done.stderr
    assert len(done.stderr.splitlines()) == len(REFUSED), "one line each"


@pytest.mark.parametrize("flags", ["False", "True"])
def test_composing_imports_no_torch(flags: str) -> None:
    """Points, settings and the sections of a pair; a rule's options are typed by its class, which needs torch."""
    done = run("import sys\n"
               "from bench.config.compose import composer\n"
               "with composer() as hydra:\n"
               f"    command = hydra.command(['method=mars', 'rule.theta=0.8'], multirun={flags})\n"
               "    print(command.settings.dry_run, hydra.pair(['pair=tiny']).name, len(command.points))\n"
               "print('torch' in sys.modules)\n")
    assert done.stdout.split() == ["False", "tiny", "1", "False"], done.stderr


def test_the_version_is_a_line() -> None:
    done = subprocess.run([sys.executable, "-m", "bench", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout == f"leeway {version('leeway')}\n"
