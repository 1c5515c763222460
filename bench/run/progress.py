"""Progress bars on stderr, one per running cell, with its τ and tokens/s so far."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from bench.run.console import console
from results.store.reasons import printable

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.conversation import Answer

MOST_BARS = 16


class Bars:
    """Print nothing where stderr is not a terminal."""

    def __init__(self, names: Sequence[str], done: Sequence[int], total: int):
        self._progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"), TimeRemainingColumn(),
            console=console(stderr=True), disable=not sys.stderr.isatty(),
            auto_refresh=False)  # no thread beside what is timed
        self._tasks: list[TaskID] = []
        self._tallies = [[0, 0, 0, 0.0] for _ in names]
        for row, (name, finished) in enumerate(zip(names, done, strict=True)):
            self._tasks.append(self._progress.add_task(printable(name), total=total, completed=finished, speed="",
                                                       visible=row < MOST_BARS))

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._progress.stop()

    def advance(self, row: int, answer: Answer) -> None:
        """One more prompt of this row is on disk."""
        tally = self._tallies[row]
        tally[0] += sum(answer.committed)
        tally[1] += len(answer.committed)
        tally[2] += len(answer.output_ids)
        tally[3] += answer.decode_s
        committed, cycles, tokens, seconds = tally
        speed = f"τ {committed / cycles:.2f}  {tokens / seconds:.0f} tok/s" if cycles and seconds else ""
        self._progress.update(self._tasks[row], advance=1, speed=speed)
        self._progress.refresh()


def display_names(cells: Sequence[Cell]) -> list[str]:
    """Short names for cells of one rotation: task, method, and the options in which methods of one name differ."""
    rows = [_flat(cell.model_dump(include={"drafter", "rule", "draft", "pruning"})) for cell in cells]
    names = []
    for cell, row in zip(cells, rows, strict=True):
        alike = [other for peer, other in zip(cells, rows, strict=True) if peer.label == cell.label]
        own = [f"{key}={value}" for key, value in row.items() if any(other.get(key) != value for other in alike)]
        names.append(" ".join([cell.task.name, cell.label, *own]))
    return names


def _flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings -> one mapping with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in plain.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
