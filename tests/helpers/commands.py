"""`python -m …` in this process, by the `main` of its module."""

from __future__ import annotations

import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from io import StringIO


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command left behind: exit status, standard output, error stream."""

    status: int | str | None
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines of the error stream that are no warning."""
        return [line for line in self.err.splitlines() if not line.startswith("WARNING: ")]

    @property
    def answered(self) -> bool:
        """Whether it did what it was asked for, or refused in one short printable line."""
        return self.status == 0 or (self.status == 2 and len(self.errors) == 1 and self.err.strip().isprintable()
                                    and len(self.err) <= 5000)


def run(module: str, *words: object) -> Ended:
    """Run `python -m MODULE WORDS`; what it raises is a defect and comes through."""
    sys.argv[1:] = given = [str(word) for word in words]
    name = module if module.startswith("bench.") else f"{module}.__main__"
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            status = import_module(name).main(given)
        except SystemExit as ended:
            status = ended.code
    return Ended(status, out.getvalue(), err.getvalue())
