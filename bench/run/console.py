"""The terminal that all commands print to, and progress on stderr.

Progress: bars, one for a whole pass and one per running cell, with τ, tokens/s and the time left;
where stderr is no terminal, a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.segment import Segment

from results.store.errors import printable

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from methods.batch import Generation
    from results.store.sample import Sample

WIDE = 150
MOST_BARS = 16
EVERY_S = 10.0
"""Between two lines of progress where there is no terminal."""


class Printing(RenderHook):
    """Shows the control characters of a text instead of sending them to the terminal: prompts,
    answers and names come from others."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Printable(renderable) for renderable in renderables]


@dataclass(frozen=True, slots=True)
class _Printable:
    renderable: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def console(*, stderr: bool = False) -> Console:
    """The standard output, or `stderr`; where it is no terminal, wide enough for whole rows. Text
    is printed as it stands: `[x]` is no markup."""
    stream = sys.stderr if stderr else sys.stdout
    made = Console(
        stderr=stderr, width=None if stream.isatty() else WIDE, markup=False, emoji=False
    )
    made.push_render_hook(Printing())
    return made


def counted(number: int, thing: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class SoFar:
    """Sums over answers.

    answers    prompts answered
    tokens     emitted tokens
    committed  tokens committed in cycles
    cycles     draft–verify cycles
    """

    answers: int = 0
    tokens: int = 0
    committed: int = 0
    cycles: int = 0

    @classmethod
    def of(cls, answers: Iterable[Generation | Sample]) -> SoFar:
        """Count these answers."""
        sums = [
            (1, len(answer.output_ids), sum(answer.committed), len(answer.committed))
            for answer in answers
        ]
        return cls(*map(sum, zip(*sums, strict=True))) if sums else cls()

    def plus(self, other: SoFar) -> SoFar:
        """Both together."""
        return SoFar(
            self.answers + other.answers,
            self.tokens + other.tokens,
            self.committed + other.committed,
            self.cycles + other.cycles,
        )

    @property
    def tau(self) -> float | None:
        """Tokens committed in a cycle; None without a cycle."""
        return self.committed / self.cycles if self.cycles else None


class Bar:
    """One bar: prompts done of all, with τ and tokens/s so far."""

    def __init__(self, progress: Progress, task: TaskID, step: Callable[[int, str], None]) -> None:
        """`step` is told how many prompts more are done, and of which cell."""
        self._progress, self._task, self._step = progress, task, step
        self._so_far, self._seconds = SoFar(), 0.0

    def advance(self, prompts: int, answers: Iterable[Generation | Sample], seconds: float) -> None:
        """So many prompts more are done; `answers`: of those that did not fail, decoded in so many
        seconds."""
        self._so_far = self._so_far.plus(SoFar.of(answers))
        self._seconds += seconds
        tau, speed = self._so_far.tau, ""
        if self._seconds > 0 and tau is not None:
            speed = f"τ {tau:.2f}  {self._so_far.tokens / self._seconds:.0f} tok/s"
        self._progress.update(self._task, advance=prompts, speed=speed)
        self._step(prompts, f"{self._progress.tasks[self._task].description}  {speed}".rstrip())


class ProgressBars:
    """The bars of one pass, on stderr: that of the whole pass, then one per cell; lines where it is
    no terminal."""

    def __init__(self, title: str, prompts: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            console=console(stderr=True),
            disable=not sys.stderr.isatty(),
            auto_refresh=False,  # no thread beside what is timed
        )
        self._whole = self._progress.add_task(printable(title), total=prompts, speed="")
        self._began = self._said_at = time.monotonic()

    def row(self, name: str, total: int, done: int = 0) -> Bar:
        """A further bar, of a cell; beyond the first 16 they are not shown."""
        shown = sum(task.visible for task in self._progress.tasks)
        task = self._progress.add_task(
            printable(name), total=total, completed=done, speed="", visible=shown < MOST_BARS
        )
        return Bar(self._progress, task, self._step)

    def _step(self, prompts: int, text: str) -> None:
        """So many prompts more are done; where stderr is no terminal, a line says so now and
        then."""
        now, whole = time.monotonic(), self._progress.tasks[self._whole]
        done = whole.completed + prompts
        left = f"{(now - self._began) * ((whole.total or done) / done - 1) / 60:.1f} min left"
        self._progress.update(self._whole, advance=prompts, speed=left)
        self._progress.refresh()
        if not sys.stderr.isatty() and now - self._said_at >= EVERY_S:
            self._said_at = now
            console(stderr=True).print(
                f"{time.strftime('%H:%M:%S')} {whole.description}: {whole.completed:g} of "
                f"{whole.total or 0:g} prompts, {left}; {text}",
                highlight=False,
                soft_wrap=True,
            )

    def __enter__(self) -> ProgressBars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def display_names(cells: Sequence[Cell]) -> list[str]:
    """Short names for cells: task, method, and the options in which methods of one name differ on a
    task."""
    options = {"drafter", "rule", "draft", "pruning"}
    methods = [(cell.task.name, cell.label) for cell in cells]
    rows = [_flattened(cell.model_dump(include=options)) for cell in cells]
    names = []
    for method, row in zip(methods, rows, strict=True):
        alike = [other for name, other in zip(methods, rows, strict=True) if name == method]
        differing = [
            f"{key}={value}"
            for key, value in row.items()
            if any(other.get(key) != value for other in alike)
        ]
        names.append(" ".join([*method, *differing]))
    return names


def _flattened(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat |= _flattened(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
