"""The unit of work of every launcher: one rotation, as it is sent to the process that completes it."""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.run.complete import Passes, complete_cells, title
from bench.run.locks import by_rotation
from results.store.cells import Store
from results.store.errors import interpolate, interpolation, redacted_word
from tasks.base import TaskError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.schema import Pair
    from bench.run.engine import Engine


@dataclass(frozen=True, slots=True)
class Work:
    """A rotation with what a worker needs to complete it. Results go only to the store.

    cells     of one rotation; at least one.
    passes    how they are completed.
    store     the store's folder, absolute.
    checkout  the folder to which paths of the cells are relative.
    argv      the command, as environment.json records it, without secrets.
    """

    cells: tuple[Cell, ...]
    passes: Passes
    store: Path
    checkout: Path
    argv: tuple[str, ...]

    @property
    def rotation(self) -> str:
        """Its name in the store."""
        return self.cells[0].rotation_key

    @property
    def pair(self) -> Pair:
        """The pair whose models the rotation needs."""
        return self.cells[0].pair

    @property
    def gpus(self) -> int:
        """GPUs that a worker needs for it."""
        engine = self.cells[0].engine
        return engine.devices if engine.device == "cuda" else 0

    @property
    def tokens(self) -> int:
        """The most tokens that its cells may emit; 0 for prompts that cannot be read, which its worker reports."""
        most = max(self.cells, key=lambda cell: float("inf") if cell.n is None else cell.n)
        try:
            return len(self.cells) * most.max_new_tokens * len(most.load_task().prompts(most.n, most.seed))
        except TaskError:
            return 0

    def __str__(self) -> str:
        return title(self.cells)


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a rotation.

    left     names of its cells that another process works on.
    failure  why its worker could not complete it; empty on success, or if the cells' folders say why.
    """

    work: Work
    left: tuple[str, ...] = ()
    failure: str = ""


def works_of(cells: Sequence[Cell], passes: Passes, store: Store) -> list[Work]:
    """The rotations of these cells, those of one pair together. Pairs that need the most GPUs come first, then those
    with the most tokens; within a pair the longest rotation comes first. Raises ValueError."""
    for cell in cells:
        if ":" in cell.engine.device:
            raise ValueError(f"engine.device={cell.engine.device}: the launcher gives each worker its GPU; give "
                             "engine.device=cuda")
    path, checkout, argv = store.root.absolute(), Path.cwd(), tuple(map(redacted_word, sys.argv))
    works = [Work(tuple(own), passes, path, checkout, argv) for own in by_rotation(cells).values()]
    tokens, totals = {work.rotation: work.tokens for work in works}, Counter["Pair"]()
    for work in works:
        totals[work.pair] += tokens[work.rotation]
    places = {pair: place for place, (pair, _) in enumerate(totals.most_common())}
    return sorted(works, key=lambda work: (-work.gpus, places[work.pair], -tokens[work.rotation]))


def next_for(pair: Pair | None, works: Iterable[Work]) -> Work | None:
    """The rotation that a worker takes next: one of the `pair` whose models it holds, else the first."""
    waiting = list(works)
    return next((work for work in waiting if work.pair == pair), waiting[0] if waiting else None)


class _Sealing(pickle.Pickler):
    """Writes the names of the environment variables that a configuration has read, in place of their values."""

    def persistent_id(self, given: Any) -> str | None:
        return hidden if type(given) is str and (hidden := interpolation(given)) != given else None


class _Unsealing(pickle.Unpickler):
    def persistent_load(self, name: str) -> str:
        return interpolate(name)


def sealed(work: Work) -> bytes:
    """The rotation for a file: no value of an environment variable is in it."""
    file = io.BytesIO()
    _Sealing(file).dump(work)
    return file.getvalue()


def unsealed(work: bytes) -> Work:
    """The rotation again, with the values of this process's environment. Raises ValueError for one that it lacks."""
    found: Work = _Unsealing(io.BytesIO(work)).load()
    return found


def complete(work: Work, engine: Engine) -> tuple[str, ...]:
    """Complete a rotation in this process, with the models that `engine` has loaded. Returns the names of the cells
    that another process works on. Raises ConfigError where this process has fewer GPUs than the rotation needs."""
    os.chdir(work.checkout)
    sys.argv = list(work.argv)
    work.cells[0].engine.check_device()
    return tuple(cell.name for cell in complete_cells(work.cells, work.passes, Store(work.store), engine))
