"""Hostile programs: none passes tests that it does not satisfy, none reaches out, and each scores
0, not nothing."""

import os

import pytest

from tasks.base import TaskError
from tasks.sandbox.run import LONGEST_ERROR, SandboxError, SandboxJob, run_job
from tests.helpers.attacks import ATTACKS, EVERY_CALL, NOTHING, NUMBER, UNGUESSED, attempt, prey
from tests.helpers.ci import needs_bubblewrap
from tests.tasks.conftest import CASES

pytestmark = needs_bubblewrap


@pytest.fixture(scope="module")
def aims():
    with prey() as found:
        yield found


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(attack, id=attack.name, marks=() if attack.quick else pytest.mark.attack)
        for attack in ATTACKS
    ],
)
def test_every_attack_is_stopped(attack, aims):
    held, how = attempt(attack, aims, timeout_s=2.0)
    assert held, f"{attack.name}: {how}"
    assert how.isprintable() and len(how) <= LONGEST_ERROR


def test_every_system_call_of_the_table_is_refused():
    assert run_job(SandboxJob(EVERY_CALL)) is None


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def f(x): return 3 * x + 1", UNGUESSED),
        ("def f(x): return []", NOTHING),
        ("def f(x): return {3: 17, 4: 23}[x]", NUMBER),
        ("def f(x): return True + {3: 16, 4: 22}[x]", NUMBER),
        *CASES["plain values"],
    ],
)
def test_right_programs_pass_and_their_tests_see_plain_values(program, tests):
    """Those of the attacks first."""
    assert run_job(SandboxJob(program, tests)) is None


LENT = "gone = globals().pop('f')\ndef {name}(*given): return {value}"
"""A program that takes its function away and lends the tests what they compare with."""
ENTRY = {"prelude": "def f(x):\n    pass", "entry_point": "f"}


@pytest.mark.parametrize(
    ("name", "value", "tests"),
    [("zip", "[]", NUMBER), *CASES["lent builtins"]],
)
@pytest.mark.parametrize("program", [LENT, "f = None\n" + LENT, LENT + "\n{name} = {name}"])
def test_no_program_lends_the_tests_a_builtin(program, name, value, tests):
    job = SandboxJob(program.replace("{name}", name).replace("{value}", value), tests, **ENTRY)
    assert run_job(job) is not None


def test_what_the_prelude_defines_is_the_testers():
    """HumanEval/50 tests with a function of its prompt: the program's own of that name is not
    asked."""
    prelude = "def twice(x): return 2 * x\ndef f(x): pass"
    asked = ("assert f(twice(3)) == 12", prelude, "f")
    own = "def twice(x): return 0\ndef f(x): return 0"
    assert run_job(SandboxJob(own, *asked)) is not None
    assert run_job(SandboxJob("def f(x): return twice(x)", *asked)) is None


def test_tests_that_two_processes_cannot_run_are_no_verdict():
    with pytest.raises(
        TaskError, match="cannot be run apart from the program: a value of type function cannot"
    ):
        run_job(SandboxJob("def f(x): return x", "try: f(lambda: 1)\nexcept: pass"))


def test_a_fault_of_the_machine_is_no_verdict(monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "memfd_create", fail)
    with pytest.raises(SandboxError, match=r"no process can be started: .*No space left on device"):
        run_job(SandboxJob("pass"))
