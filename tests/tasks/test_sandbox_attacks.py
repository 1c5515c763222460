"""Hostile programs: none passes tests that it does not satisfy, none reaches out, and each scores 0, not nothing."""

from __future__ import annotations

import os
import time

import pytest

from tasks.sandbox import run as sandbox
from tasks.sandbox.run import Job, Mode, SandboxError, run_job
from tests.helpers.attacks import ATTACKS, EVERY_CALL, Attack, attempt, prey
from tests.helpers.sandbox_table import listed

pytestmark = pytest.mark.skipif(os.uname().sysname != "Linux", reason="the sandbox is made of Linux system calls")
QUICK = [attack for attack in ATTACKS if attack.quick]
OTHERS = [attack for attack in ATTACKS if not attack.quick]


@pytest.fixture(params=["limits", "bubblewrap"])
def mode(request) -> Mode:
    if request.param == "bubblewrap" and (fault := sandbox.bubblewrap_fault()):
        pytest.skip(f"bubblewrap does not work here: {fault}")
    if request.param == "limits" and (exposure := sandbox.exposure("limits")):
        pytest.skip(exposure)
    return request.param


@pytest.fixture(scope="module")
def aims():
    with prey() as found:
        yield found


def stopped(attack: Attack, mode: Mode, aims: dict[str, str]) -> None:
    began = time.monotonic()
    held, how = attempt(attack, mode, aims, timeout_s=2.0)
    assert held, f"{attack.name}: {how}"
    assert how.isprintable()
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("attack", QUICK, ids=lambda attack: attack.name)
def test_the_worst_attacks_are_stopped(mode, attack, aims):
    stopped(attack, mode, aims)


@pytest.mark.attack
@pytest.mark.parametrize("attack", OTHERS, ids=lambda attack: attack.name)
def test_every_attack_is_stopped(mode, attack, aims):
    stopped(attack, mode, aims)


def test_the_page_lists_every_attack():
    assert listed() == [attack.name for attack in ATTACKS], "run `python -m tests.helpers.sandbox_table`"


def test_every_system_call_of_the_table_is_refused(mode):
    assert run_job(Job(EVERY_CALL), require=mode).error is None


def test_a_right_program_passes_the_tests_that_the_attacks_do_not(mode):
    attack = ATTACKS[0]
    assert run_job(Job("def f(x): return 3 * x + 1", attack.tests), require=mode).error is None


@pytest.mark.parametrize(("program", "tests"), [
    ("def f(x): x.append(4)", "x = [1]\nf(x)\nassert x == [1, 4]"),
    ("def f(x, *, y): y['a'] = {x}", "y = {}\nf(2, y=y)\nassert y == {'a': {2}}"),
    ("from collections import *\ndef f(x): return Counter(x)", "assert f('aab') == {'a': 2, 'b': 1}"),
    ("from collections import *\nP = namedtuple('P', 'a b')\ndef f(x): return P(x, 2)", "assert f(1) == (1, 2)"),
    ("def f(x): return {1: {(2, 'ü'): frozenset({3})}}, b'\\xff', 2**100, 1e300, 1j, None, range(3)",
     "assert f(0) == ({1: {(2, 'ü'): frozenset({3})}}, b'\\xff', 2**100, 1e300, 1j, None, range(3))"),
    ("def f(x):\n    yield x\n    yield from 'ab'", "assert list(f(1)) == [1, 'a', 'b'] and f(1) != [1, 'a', 'b']"),
    ("def f(x):\n    if x < 0: raise ValueError('below')",
     "try: f(-1)\nexcept ValueError as e: assert str(e) == 'below'\nelse: assert False"),
    ("class E(KeyError): pass\ndef f(x): raise E(x)", "try: f(7)\nexcept LookupError as e: assert e.args == (7,)"),
    ("class Node:\n    def __init__(self, v): self.v, self.next = v, None\ndef f(n): return n.v + n.next.v",
     "a = Node(1)\na.next = Node(2)\nassert f(a) == 3 and a.next.v == 2 and a == a"),
    ("def sum(a, b): return a * b", "assert sum(2, 4) == 8"),
    ("import math\ndef f(x): return math.sqrt(x)", "assert math.isclose(f(2), 2**0.5)"),
    ("from math import *\ndef f(x): return sqrt(x)", "assert isclose(f(2), 2**0.5)"),
    ("def f(x): return lambda y: x + y", "assert f(1)(2) == 3"),
    ("import datetime, decimal\ndef f(x): return datetime.date(2020, 1, x), decimal.Decimal('1.5'), {1: 2}.keys()",
     "import datetime\nassert f(2) == (datetime.date(2020, 1, 2), 1.5, {1})"),
])
def test_tests_see_what_they_would_see_in_one_process(program, tests):
    assert run_job(Job(program, tests)).error is None


def test_what_the_prelude_defines_is_the_testers():
    """HumanEval/50 tests with a function of its prompt: the program's own of that name is not asked."""
    prelude = "def twice(x): return 2 * x\ndef f(x): pass"
    job = Job("def twice(x): return 0\ndef f(x): return 0", "assert f(twice(3)) == 12", prelude, "f")
    assert not run_job(job).ok
    assert run_job(Job("def f(x): return twice(x)", "assert f(twice(3)) == 12", prelude, "f")).error is None


def test_the_program_does_not_see_its_tests(mode):
    program = "import gc, sys\nfound = [o for o in gc.get_objects() if 'hidden_from_it' in str(o)[:10**4]]\n" \
              "def f(): return len(found), 'tests' in str(sys._getframe(1).f_locals)"
    assert run_job(Job(program, "hidden_from_it = (1, False)\nassert f()[1] is False"), require=mode).error is None


def test_tests_that_two_processes_cannot_run_are_no_verdict():
    with pytest.raises(SandboxError, match="cannot be run apart from the program: a value of type function cannot"):
        run_job(Job("def f(x): return x", "f(lambda: 1)"))


@pytest.mark.parametrize(("call", "fault"), [("memfd_create", OSError(28, "No space left on device")),
                                             ("pidfd_open", OSError(12, "Cannot allocate memory"))])
def test_a_fault_of_the_machine_is_no_verdict(monkeypatch, call, fault):
    sandbox.bubblewrap_fault()

    def fail(*_):
        raise fault

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(SandboxError, match=fault.strerror):
        run_job(Job("pass"))
