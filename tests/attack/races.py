"""Eight processes on one store: no sample is doubled or changed, and afterwards every cell is complete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.attack import warm
from tests.attack.part import Field, Trial
from tests.attack.stores import Decoded, decoded, difference, doubled

PROCESSES, ROUNDS, LIMIT = 8, 6, 300.0
METHODS, NUMBERS = ["sps", "mars_sampling", "ar"], (2, 3, 4)
BUSY = " is being written by process "
"""What a process says that leaves a cell to another one."""


def trials(field: Field) -> Iterator[Trial]:
    """ROUNDS times: all start at once, with the methods in random order and random numbers of prompts."""
    undisturbed = field.folder / "undisturbed"
    ended = _start(METHODS, max(NUMBERS), undisturbed).ended(LIMIT)
    if ended.status != 0:
        raise RuntimeError(f"status {ended.status} without a race: {ended.err[-300:]}")
    expected = decoded(undisturbed / "store")
    for number in range(ROUNDS):
        output = field.folder / str(number)
        running = [_start(field.draw.sample(METHODS, len(METHODS)), field.draw.choice(NUMBERS), output)
                   for _ in range(PROCESSES)]
        for index, process in enumerate(running):
            yield Trial(f"round {number}, process {index}", _fault(process.ended(LIMIT)))
        yield Trial(f"round {number}, the store", _complete(output, expected))


def _start(methods: list[str], n: int, output: Path) -> warm.Running:
    return warm.start(["bench", "-m", f"method={','.join(methods)}", f"n={n}", "decoding.temperature=1", "batch=2",
                       "decoding.max_new_tokens=12", "engine.threads=1", f"output.dir={output}"], output / "log")


def _fault(ended: warm.Ended) -> str:
    if ended.traceback:
        return f"traceback: {ended.err.splitlines()[-1]}"
    other = [line for line in ended.errors if BUSY not in line]
    return f"status {ended.status}: {' / '.join(other)[:300]}" if ended.status not in (0, 1) or other else ""


def _complete(output: Path, expected: Decoded) -> str:
    """What is wrong with the store after the race, and after one more command."""
    store = output / "store"
    if fault := difference(decoded(store), expected, complete=False) or doubled(store):
        return fault
    ended = _start(METHODS, max(NUMBERS), output).ended(LIMIT)
    if ended.status != 0:
        return f"status {ended.status} afterwards: {' / '.join(ended.errors)[:300]}"
    return difference(decoded(store), expected) or doubled(store)
