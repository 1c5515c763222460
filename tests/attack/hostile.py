"""Every hostile program of tests/helpers/attacks.py."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.sandbox.run import SandboxError, bubblewrap_fault
from tests.attack.part import Field, Trial
from tests.helpers.attacks import ATTACKS, attempt, prey

LIMIT = 3.0
"""Seconds that a program may take."""


def missing() -> str:
    """Why no program can be run; empty where they can."""
    return bubblewrap_fault() or ""


def trials(field: Field) -> Iterator[Trial]:
    """Each program, in random order."""
    with prey() as aims:
        for attack in field.draw.sample(ATTACKS, len(ATTACKS)):
            try:
                stopped, how = attempt(attack, aims, timeout_s=LIMIT)
            except SandboxError as error:
                stopped, how = False, f"no verdict: {error}"
            fault = "" if stopped and how.isprintable() else f"not stopped: {how!r}"
            yield Trial(attack.name, fault)
