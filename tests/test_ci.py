"""The plugin of continuous integration: what does not fit in the budget is listed, an unexpected skip fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TESTS = """
import time
import pytest

@pytest.mark.slow
def test_slow():
    pass

@pytest.mark.attack
def test_attack():
    time.sleep(3.5)

def test_other():
    pytest.skip(REASON)
"""
PROJECT = Path(__file__).parents[1]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run pytest with the plugin over TESTS; returns (exit status, output)."""
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.setenv("CI", "true")

    def run(*arguments: str, reason: str = "no network") -> tuple[int, str]:
        (tmp_path / "test_made_up.py").write_text(TESTS.replace("REASON", repr(reason)))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.helpers.ci", "-c", str(PROJECT / "pyproject.toml"),
             "--rootdir", str(tmp_path), "-v", *arguments, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr
    return run


def test_what_does_not_fit_is_listed(run) -> None:
    """The attack comes first although it stands second, and takes all the time."""
    status, output = run("-n", "0", "--budget", "3", "-m", "slow or attack")
    listed = output[output.index("1 tests did not fit in the budget of 3.0 s"):]
    assert status == 0 and "test_made_up.py::test_slow" in listed and "test_attack" not in listed


def test_workers_share_the_deadline(run) -> None:
    status, output = run("-n", "1", "--budget", "0")
    assert status == 0 and "3 tests did not fit" in output


def test_without_a_budget_nothing_is_left_out(run) -> None:
    status, output = run("-n", "0")
    assert status == 0 and "2 passed, 1 skipped" in output and "did not fit" not in output


@pytest.mark.parametrize("reason,expected", [("no reference data at /x", 0), ("it is too hard", 1)])
def test_an_unexpected_skip_fails(run, monkeypatch: pytest.MonkeyPatch, reason: str, expected: int) -> None:
    status, output = run("-n", "0", reason=reason)
    assert status == expected and ("unexpected skips" in output) == bool(expected)
    monkeypatch.delenv("CI")
    assert run("-n", "0", reason=reason)[0] == 0


def test_no_long_test_is_no_failure(run) -> None:
    assert run("-n", "0", "--budget", "5", "-m", "latex")[0] == 0
    assert run("-n", "0", "-m", "latex")[0] == 5
