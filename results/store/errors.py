"""The errors of everything that reads or writes the store."""

from __future__ import annotations

from pydantic import ValidationError


class StoreError(RuntimeError):
    """The store cannot be read or written. The message is one line: which file, what is wrong, how to fix it."""


class Locked(StoreError):
    """Another process is writing the cell."""


def first_fault(error: ValidationError) -> str:
    """The first fault that pydantic found, in one line: `baseline.score: Input should be a valid number`."""
    fault = error.errors(include_url=False)[0]
    where = ".".join(map(str, fault["loc"]))
    return " ".join((f"{where}: {fault['msg']}" if where else fault["msg"]).split())
