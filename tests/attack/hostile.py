"""Every hostile program of tests/helpers/attacks.py, in each mode of the sandbox that the machine has."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.sandbox.run import SandboxError, bubblewrap_fault, exposure
from tests.attack.part import Field, Trial
from tests.helpers.attacks import ATTACKS, attempt, prey
from tests.helpers.sandbox_table import MODES

LIMIT = 3.0
"""Seconds that a program may take."""


def modes() -> list[str]:
    """The modes that work here."""
    return [mode for mode in MODES if not (bubblewrap_fault() if mode == "bubblewrap" else exposure(mode))]


def missing() -> str:
    """Why no program can be run; empty where a mode works."""
    return "" if modes() else bubblewrap_fault() or "no mode of the sandbox works here"


def trials(field: Field) -> Iterator[Trial]:
    """Each program in each mode, in random order."""
    programs = [(mode, attack) for mode in MODES if mode in modes() for attack in ATTACKS]
    with prey() as aims:
        for mode, attack in field.draw.sample(programs, len(programs)):
            try:
                stopped, how = attempt(attack, mode, aims, timeout_s=LIMIT)
            except SandboxError as error:
                stopped, how = False, f"no verdict: {error}"
            fault = "" if stopped and how.isprintable() else f"not stopped: {how!r}"
            yield Trial(f"{attack.name} ({mode})", fault)
