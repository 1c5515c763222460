"""Hostile programs for the sandbox. Each reaches its last line, or passes its tests, only where the
attack works."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tasks.sandbox.calls import REFUSED
from tasks.sandbox.run import SandboxJob, run_job
from tests.helpers.tables import beside


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile program.

    name      what it tries, as the table of docs/sandbox.md names it
    program   the source; {host}, {folder}, {socket}, {add_key} and {machine} stand for the
              harness' process id, a folder that every user may write to with the files `secret`
              and `kept`, a listening socket in it, a system call, and the machine's name
    tests     the tests that it must not pass
    quick     run on every `make test`; the others with `make attack`
    """

    name: str
    program: str
    tests: str = ""
    quick: bool = False


UNGUESSED = "import random\nx = random.SystemRandom().randrange(2**64)\nassert f(x) == 3 * x + 1"
"""No program passes this that does not compute it."""
C = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
PREAMBLES = {
    "{c}\n": C,
    "{put}\n": """import os
def put(message):
    for d in range(3, 64):
        try: os.write(d, message)
        except OSError: pass
""",
    "{passed}": '{"state": "passed", "error": null, "nonce": ""}',
}
PAIRS = """
def assertion(out, exp):
    assert out == exp
def check(candidate):
    for inp, exp in zip([[3.0], [4.0]], {wanted}):
        assertion(candidate(*inp), exp)
check(f)
"""
"""Tests in the form of HumanEval's, with the results that are wanted."""
NOTHING, NUMBER, NONE = (
    PAIRS.replace("{wanted}", wanted) for wanted in ("[[], []]", "[17, 23]", "[None, None]")
)
TESTS = {"nothing": NOTHING, "number": NUMBER, "none": NONE}

CALLS = {name: numbers[os.uname().machine != "x86_64"] for name, numbers in REFUSED.items()}
EVERY_CALL = C + (
    f"for name, number in {CALLS}.items():\n    ctypes.set_errno(0)\n"
    "    assert libc.syscall(number, 0, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1, name\n"
)
"""A program that passes where each system call of the table is refused."""


def _attacks():
    listed = beside(__file__, "attacks.yaml")
    for section, rows in listed.items():
        undeserved = section == "undeserved"
        for row in rows:
            program = row["program"]
            for name, text in PREAMBLES.items():
                program = program.replace(name, text)
            tests = row.get("tests", UNGUESSED if section == "verdict" else "")
            yield Attack(
                row["name"],
                program,
                TESTS.get(tests, tests),
                quick=undeserved or row.get("quick", False),
            )


ATTACKS = list(_attacks())


@contextmanager
def prey() -> Iterator[dict[str, str]]:
    """What the attacks aim at, by the name that stands for it in their programs."""
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as name,
        socket.socket(socket.AF_UNIX) as listening,
    ):
        folder = Path(name)
        folder.chmod(0o777)
        for file in ("secret", "kept"):
            (folder / file).write_text("mine")
            (folder / file).chmod(0o666)
        listening.bind(str(folder / "socket"))
        listening.listen()
        (folder / "socket").chmod(0o777)
        yield {"{host}": str(os.getpid()), "{folder}": name, "{socket}": str(folder / "socket"),
               "{add_key}": str(CALLS["add_key"]), "{machine}": socket.gethostname()}  # fmt: skip


def attempt(attack: Attack, aims: dict[str, str], timeout_s: float = 5.0) -> tuple[bool, str]:
    """Run one attack; whether it was stopped, and how it ended. Raises SandboxError where it harmed
    the sandbox."""
    program = attack.program
    for name, value in aims.items():
        program = program.replace(name, value)
    before = _state(Path(aims["{folder}"]))
    error = run_job(SandboxJob(program, attack.tests), timeout_s=timeout_s)
    after = _state(Path(aims["{folder}"]))
    if before != after:
        return (
            False,
            f"it changed {', '.join(sorted(name for name in before if before[name] != after[name]))}",
        )
    return error is not None, error or "it worked"


def _state(folder):
    """What no program may change on the host, and what belongs to this process alone."""
    return {
        "files": [
            (path.name, path.stat().st_mode, path.stat().st_mtime_ns)
            for path in sorted(folder.iterdir())
        ],
        "the harness": (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)),
    }
