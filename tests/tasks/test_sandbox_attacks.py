"""Hostile programs: none passes tests that it does not satisfy, none reaches out, and each scores
0, not nothing."""

from __future__ import annotations

import os

import pytest

from tasks.base import TaskError
from tasks.sandbox import run as sandbox
from tasks.sandbox.run import LONGEST_ERROR, SandboxError, SandboxJob, run_job
from tests.helpers.attacks import ATTACKS, EVERY_CALL, NOTHING, NUMBER, UNGUESSED, attempt, prey

pytestmark = pytest.mark.skipif(
    sandbox.bubblewrap_fault() is not None,
    reason=f"bubblewrap does not work here: {sandbox.bubblewrap_fault()}",
)
QUICK = [attack for attack in ATTACKS if attack.quick]
OTHERS = [attack for attack in ATTACKS if not attack.quick]


@pytest.fixture(scope="module")
def aims():
    with prey() as found:
        yield found


def stopped(attack, aims):
    held, how = attempt(attack, aims, timeout_s=2.0)
    assert held, f"{attack.name}: {how}"
    assert how.isprintable() and len(how) <= LONGEST_ERROR


@pytest.mark.parametrize("attack", QUICK, ids=lambda attack: attack.name)
def test_the_worst_attacks_are_stopped(attack, aims):
    stopped(attack, aims)


@pytest.mark.attack
@pytest.mark.parametrize("attack", OTHERS, ids=lambda attack: attack.name)
def test_every_attack_is_stopped(attack, aims):
    stopped(attack, aims)


def test_every_system_call_of_the_table_is_refused():
    assert run_job(SandboxJob(EVERY_CALL)) is None


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def f(x): return 3 * x + 1", UNGUESSED),
        ("def f(x): return []", NOTHING),
        ("def f(x): return {3: 17, 4: 23}[x]", NUMBER),
        ("def f(x): return True + {3: 16, 4: 22}[x]", NUMBER),
    ],
)
def test_right_programs_pass_the_tests_that_the_attacks_do_not(program, tests):
    assert run_job(SandboxJob(program, tests)) is None


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        (
            "from collections import *\ndef f(x): return Counter(x)",
            "assert f('aab') == {'a': 2, 'b': 1}",
        ),
        (
            "from collections import *\nP = namedtuple('P', 'a b')\ndef f(x): return P(x, 2)",
            "assert f(1) == (1, 2)",
        ),
        (
            "def f(x): return {1: {(2, 'ü'): frozenset({3})}}, b'\\xff', 2**100, 1e300, 1j, "
            "None, True",
            "assert f(0) == ({1: {(2, 'ü'): frozenset({3})}}, b'\\xff', 2**100, 1e300, 1j, None, "
            "True)",
        ),
        ("def f(x): return 7 ** x", "assert f(20_000) == 7 ** 20_000"),
        (
            "def f(x):\n    yield x\n    yield from 'ab'",
            "assert list(f(1)) == [1, 'a', 'b'] and f(1) != [1, 'a', 'b']",
        ),
        (
            "def f(x): return {1: x}.items()",
            "assert list(f(2)) == [(1, 2)] and set(f(2)) == {(1, 2)}",
        ),
        (
            "def f(x, kind): return [one for one in x if not isinstance(one, kind)]",
            "assert f([1, 'a', 2], int) == ['a']",
        ),
        (
            "def f(x):\n    if x < 0: raise ValueError('below')",
            "try: f(-1)\nexcept ValueError as e: assert str(e) == 'below'\nelse: assert False",
        ),
        (
            "class E(KeyError): pass\ndef f(x): raise E(x)",
            "try: f(7)\nexcept LookupError: pass\nelse: assert False",
        ),
        (
            "class Node:\n    def __init__(self, v): self.v, self.next = v, None\ndef f(n): "
            "return n.v + n.next.v",
            "a = Node(1)\na.next = Node(2)\nassert f(a) == 3 and a.next.v == 2 and a == a",
        ),
        ("def f(x): return sorted(x)", "assert f({2: 3, 1: 4}.items()) == [(1, 4), (2, 3)]"),
        ("f = range\ndef g(x): return sum(x)", "assert list(f(3)) == [0, 1, 2] and g(f(3)) == 3"),
        ("f = str", "assert f(17) == '17'"),
        ("def f(x): return x is ValueError", "assert f(ValueError) is True"),
        ("import math\ndef f(x): return math.sqrt(x)", "assert math.isclose(f(2), 2**0.5)"),
        ("def f(x): return lambda y: x + y", "assert f(1)(2) == 3"),
        (
            "import decimal, fractions\ndef f(x): return decimal.Decimal('1.5'), "
            "fractions.Fraction(x, 2)",
            "assert f(1) == (1.5, 0.5)",
        ),
        ("def f(x):\n    x.append(4)\n    return x", "x = [1]\nassert f(x) == [1, 4] and x == [1]"),
    ],
)
def test_tests_see_plain_values(program, tests):
    assert run_job(SandboxJob(program, tests)) is None


LENT = "gone = globals().pop('f')\ndef {name}(*given): return {value}"
"""A program that takes its function away and lends the tests what they compare with."""
ENTRY = {"prelude": "def f(x):\n    pass", "entry_point": "f"}


@pytest.mark.parametrize(
    ("name", "value", "tests"),
    [
        ("zip", "[]", NUMBER),
        ("enumerate", "[]", "for i, wanted in enumerate([3, 5]): assert f(i) == wanted"),
        ("range", "[]", "for i in range(9): assert f(i) == 3 * i"),
        ("tuple", "0", "assert tuple(f([1])) == tuple([3])"),
        ("all", "True", "assert all(f(i) == 3 * i for i in (1, 2))"),
        ("abs", "0", "assert abs(f(1) - 2.5) < 1e-6"),
        ("isinstance", "True", "assert isinstance(f(1), str)"),
        ("len", "3", "assert len(f(1)) == 3"),
        ("print", "None", "assert f(1) is None"),
    ],
)
@pytest.mark.parametrize("program", [LENT, "f = None\n" + LENT, LENT + "\n{name} = {name}"])
def test_no_program_lends_the_tests_a_builtin(program, name, value, tests):
    job = SandboxJob(program.replace("{name}", name).replace("{value}", value), tests, **ENTRY)
    assert run_job(job) is not None


def test_a_builtin_name_is_the_programs_where_it_is_the_entry_point():
    job = SandboxJob("def sum(a, b): return a * b", "assert sum(2, 4) == 8", entry_point="sum")
    assert run_job(job) is None


def test_what_the_prelude_defines_is_the_testers():
    """HumanEval/50 tests with a function of its prompt: the program's own of that name is not
    asked."""
    prelude = "def twice(x): return 2 * x\ndef f(x): pass"
    job = SandboxJob(
        "def twice(x): return 0\ndef f(x): return 0", "assert f(twice(3)) == 12", prelude, "f"
    )
    assert run_job(job) is not None
    assert (
        run_job(SandboxJob("def f(x): return twice(x)", "assert f(twice(3)) == 12", prelude, "f"))
        is None
    )


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
