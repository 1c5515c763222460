"""The cells of one command: completed, read back and printed."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bench.config.errors import ConfigError
from bench.run.console import console
from bench.run.cost_clock import PricedCell
from bench.run.related_cells import compared_summary, lossless_of
from bench.run.requested_cell import RequestedCell
from bench.run.trackers import Logbook
from results.metrics.delta import Between, between
from results.metrics.distortion import judged_at
from results.metrics.tau_gain import over_lossless
from results.store.cells import CellFolder, Store
from results.store.errors import StoreError, one_line
from results.store.files import check_writable
from results.store.traces import TraceFolder

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Settings
    from bench.run.engine import Engines
    from results.metrics.summary import Summary
    from results.store.state import Todo

log = logging.getLogger(__name__)
MANY_UNSCORED = 100
"""Answers of one task that are not stored without a score unless `score=later` says so."""


class Session:
    """What all cells of a command share. Models are imported and loaded when the first cell runs.

    settings  where results go and how they are shown.
    store     the cells' folders; each samples file is read once.
    logbook   what the tracker is told.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings, self.logbook = settings, Logbook(settings)
        self.store = Store(settings.store.dir)
        self._requested: dict[str, RequestedCell] = {}
        self._todos: dict[str, Todo] = {}
        self._summaries: dict[str, Summary | None] = {}

    def forget(self) -> None:
        """Forget what was read of the cells: they may have changed."""
        for known in (self._requested, self._todos, self._summaries):
            known.clear()
        self.__dict__.pop("sessions_of_store", None)

    def todo(self, cell: Cell, *, is_traced: bool = False) -> Todo:
        """What the cell lacks, read once until `forget`. `is_traced`: whether a report reads its
        traces."""
        return self._todo(cell, is_traced or self.settings.trace is True)

    def _todo(self, cell: Cell, is_traced: bool) -> Todo:
        key = f"{_key(cell)} {is_traced}"
        if key not in self._todos:
            requested = self.requested(cell)
            self._todos[key] = requested.todo(is_traced=is_traced, is_listed=False)
        return self._todos[key]

    def unanswered(self, cell: Cell) -> Sequence[str]:
        """Ids of the prompts without an answer. Raises StoreError where they cannot be listed."""
        todo = self.todo(cell)
        return self.requested(cell).ids if todo.whole else todo.decode

    def lacking(self, cells: Iterable[Cell], traced: Collection[str] = ()) -> list[Cell]:
        """Those of the cells that lack something, each number of prompts once; `traced`: names of
        cells whose traces are read."""
        once = {(cell.name, cell.n, cell.timed): cell for cell in cells}.values()
        return [cell for cell in once if self.todo(cell, is_traced=cell.name in traced)]

    @cached_property
    def engines(self) -> Engines:
        """The engines, with the models loaded so far."""
        from bench.run.engine import Engines

        return Engines()

    def check(self, cells: Sequence[Cell], output: str | None = None) -> None:
        """Raises StoreError for a file of these cells or of their baselines that cannot be read;
        where one of them is incomplete, for a store that cannot be written; and for the folder
        `output` of output.dir, if the command writes one. Raises ConfigError as `check_scores`."""
        missing = self.lacking(cells)
        for folder in self._folders(with_baselines(cells)):
            folder.check()
        if missing:
            self.check_scores(cells)
            check_writable(self.store.root, "store.dir")
            self.settings.launch.options.check(self.settings.launch.name)
        if output is not None:
            check_writable(self.settings.output.dir / output, "output.dir")

    def check_scores(self, cells: Iterable[Cell]) -> None:
        """Raises ConfigError where many answers would be decoded that cannot be scored here, unless
        `score=later`."""
        if self.settings.score == "later":
            return
        missing: dict[str, set[tuple[str, str]]] = {}
        for cell in with_baselines(cells):
            if fault := cell.load_task().unscorable():
                answers = missing.setdefault(f"task={cell.task.name}: {fault}", set())
                answers |= {(cell.name, prompt) for prompt in self.unanswered(cell)}
        for fault, answers in missing.items():
            if len(answers) >= MANY_UNSCORED:
                raise ConfigError(
                    f"{fault}; {len(answers)} answers would be stored without a score: score=later "
                    "allows it, and the same command scores them on a machine that can"
                )

    def timings(self, cells: Iterable[Cell]) -> int:
        """How many timings of prompts the cells' folders hold; a file that cannot be read has none,
        as its cell says by itself."""
        rows = 0
        for folder in self._folders(cell for cell in cells if cell.timed_prompts):
            with suppress(StoreError):
                rows += len(folder.timed())
        return rows

    def summarise(self, cells: Sequence[Cell]) -> None:
        """Write the summaries of the cells and of their baselines that are older than their files,
        and tell the tracker. Raises StoreError."""
        baselines = [cell.baseline().replace(timed=0) for cell in cells]
        for cell in {cell.name: cell for cell in (*baselines, *cells)}.values():
            if self.todo(cell).is_measured and not self.requested(cell).has_latest_summary():
                self.write_summary(cell)
        for cell in cells if self.logbook.is_open else ():
            folder, summary = self.folder(cell), self.compared(cell)
            if summary is not None:
                self.logbook.log_cell(folder, summary)

    def begin_another(self, cells: Iterable[Cell]) -> None:
        """Where prompts are still to be timed, begin the next measuring session and do not return:
        a process of its own, some minutes later. What is timed stays."""
        if not any(self.todo(cell).time for cell in cells):
            return
        gap = self.settings.sessions_gap_s
        self.print(f"the next measuring session begins in {gap:g} s")
        time.sleep(gap)
        words = [word for word in sys.argv[1:] if word.lstrip("+-").partition("=")[0] != "fresh"]
        os.execv(sys.executable, [sys.executable, "-m", "bench", *words])

    def _folders(self, cells: Iterable[Cell]) -> Collection[CellFolder]:
        """The folders of these cells, each once."""
        folders = (self.requested(cell).whole for cell in cells)
        return {folder.key: folder for folder in folders}.values()

    def requested(self, cell: Cell) -> RequestedCell:
        """The cell's folder, restricted to the prompts that the cell asks for; found once until
        `forget`."""
        key = _key(cell)
        if key not in self._requested:
            self._requested[key] = RequestedCell(cell, self.store)
        return self._requested[key]

    def folder(self, cell: Cell) -> RequestedCell:
        """As `requested`; with `cost`, on that machine."""
        if self.settings.cost is None:
            return self.requested(cell)
        return PricedCell(cell, self.store, self.settings.cost)

    def judged_at(self, cell: Cell, summary: Summary, temperature: float) -> Summary:
        """The summary with what the cell gains over lossless decoding at another temperature than
        its own. Raises StoreError."""
        strict = lossless_of(cell, self.store, temperature)
        least = judged_at(summary.sums.get("distortion_least"), temperature)
        return over_lossless(summary.with_values(**least), self.requested(cell).by_id(), strict)

    @property
    def between(self) -> Between | None:
        """What differs between measuring sessions; None under a cost profile."""
        return self.sessions_of_store if self.settings.cost is None else None

    @cached_property
    def sessions_of_store(self) -> Between:
        """Of every cell of the store that was timed: one number for all reports."""
        timed = []
        for cell in self.store.cells():
            with suppress(StoreError):  # who asks for that cell is told
                timed.append(cell.timed())
        return between(timed)

    def trace_failure(self, cell: Cell) -> str | None:
        """Why the cell could not be traced, in one line."""
        return TraceFolder(self.folder(cell)).failure()

    def compared(self, cell: Cell) -> Summary | None:
        """The summary of the prompts asked for, with the metrics that compare cells; None while one
        of them was not tried or is to be timed. Raises StoreError."""
        key = _key(cell)
        if key not in self._summaries:
            todo, summary = self._todo(cell, is_traced=False), None
            if todo.fault is not None:
                raise StoreError(todo.fault)
            if todo.is_measured:
                summary = compared_summary(self.folder(cell), self.store, self.between)
            self._summaries[key] = summary
        return self._summaries[key]

    def write_summary(self, cell: Cell) -> None:
        """Write the summary.json of a measured cell, for other programs. Nothing reads it back."""
        folder = self.requested(cell)
        try:
            summary = compared_summary(folder, self.store, self.sessions_of_store)
            folder.write_summary(summary.plain())
        except StoreError as error:  # its failure is listed; the others are written
            log.warning("%s: no summary.json: %s", folder.key, error)

    def problem(self, cell: Cell) -> str | None:
        """Why the cell is incomplete, in one line; None when it is complete."""
        todo, folder = self.todo(cell), self.requested(cell)
        if todo.failure or todo.fault or not todo:
            return todo.failure or todo.fault
        if not todo.is_measured:
            if not folder.path.exists():
                return "was not run"
            try:
                with folder.lock():  # raises, naming the process that holds it
                    return "was not finished"
            except StoreError as error:
                return str(error)
        if todo.failed:
            prompt, reason = next(iter(todo.failed.items()))
            return (
                f"{len(todo.failed)} of {len(folder.ids)} prompts failed; first {prompt}: {reason}"
            )
        if todo.trace:
            return self.trace_failure(cell) or "was not traced"
        if todo.score or (todo.baseline is not None and todo.baseline.score):
            return folder.baseline.failure() or "answers without a score"
        return "was not finished"

    def print(self, *parts: Any, **options: Any) -> None:
        """Print to the terminal, as `rich` does."""
        console().print(*parts, **{"highlight": False, **options})

    def print_outcome(self, cells: Sequence[Cell], labels: Sequence[str]) -> int:
        """Print the results table, unless nothing was measured, the failures and, with
        summary=json, the summaries. Returns the exit status:
        0 when every cell is complete."""
        columns = ("point", "τ", "acceptance", "speedup", "accuracy", "tokens/s", "n")
        table = Table(*columns, title=f"results in {self.store.root}", title_justify="left")
        summaries = [
            (label, self.compared(cell)) for label, cell in zip(labels, cells, strict=True)
        ]
        for label, summary in summaries:
            table.add_row(label, *_figures(summary))
        if any(summary is not None and summary.n for _, summary in summaries):
            self.print(table)
        for line in self._clocks(zip(cells, summaries, strict=True)):
            self.print(line, soft_wrap=True)
        status = self.print_failures(cells)
        if self.settings.summary == "json":
            self.print_summaries(cells)
        return status

    def print_failures(self, cells: Sequence[Cell], others: Mapping[str, str] | None = None) -> int:
        """Print a line on stderr for each incomplete cell and for each of `others`, name -> reason;
        1 after any."""
        problems = {}
        for cell in cells:
            problem = self.problem(cell)
            if problem is not None:
                problems[cell.name] = problem
        problems |= others or {}
        for name, problem in problems.items():
            print(f"failed: {name}: {one_line(problem)}", file=sys.stderr)
        return 1 if problems else 0

    def print_summaries(self, cells: Sequence[Cell]) -> None:
        """Print one JSON line a cell (summary=json) at the end of the standard output."""
        for cell in cells:
            summary = self.compared(cell)
            if summary is None:
                print(json.dumps({"cell": cell.name, "error": self.problem(cell)}))
            else:
                print(json.dumps(summary.plain()))

    def _clocks(self, cells: Iterable[tuple[Cell, tuple[str, Summary | None]]]) -> Iterator[str]:
        """A line for measured points of one baseline that were timed in different measuring
        sessions."""
        baselines: dict[str, dict[str, list[str]]] = {}
        for cell, (label, summary) in cells:
            started = {row.started for row in self.requested(cell).timed()} if summary else ()
            if started:
                sessions = baselines.setdefault(cell.baseline().name, {})
                sessions.setdefault(" and ".join(sorted(started)), []).append(label)
        for sessions in baselines.values():
            if len(sessions) > 1:
                timed = "; ".join(
                    f"{began}: {', '.join(names)}" for began, names in sessions.items()
                )
                yield (
                    f"warning: timed at different times, so their speeds do not compare: {timed}. "
                    "fresh=true times all again, in one session"
                )


def with_baselines(cells: Iterable[Cell]) -> list[Cell]:
    """The cells, each number of prompts once, and their baselines."""
    once = {(cell.name, cell.n): cell for cell in cells}.values()
    return [each for cell in once for each in (cell, cell.baseline())]


def _key(cell: Cell) -> str:
    """Equal for cells that ask for the same prompts of one folder, scored in the same way."""
    return f"{cell.name} {cell.n} {cell.timed} {getattr(cell.task.options, 'pass_at', 1)}"


def _figures(summary: Summary | None) -> list[str]:
    if summary is None:
        return ["—"] * 6
    return [
        _number(summary.tau, ".2f"),
        _number(summary.acceptance_rate, ".1%"),
        _number(summary.speedup, ".2f", "×", summary.speedup_ci95),
        _number(summary.accuracy, ".1%", "", summary.accuracy_ci95),
        _number(summary.tokens_per_s, ".1f"),
        f"{summary.n}" + (f" ({summary.failed} failed)" if summary.failed else ""),
    ]


def _number(
    value: float | None, form: str, unit: str = "", interval: Sequence[float] | None = None
) -> str:
    if value is None:
        return "—"
    around = f" [{interval[0]:{form}}, {interval[1]:{form}}]" if interval else ""
    return f"{value:{form}}{unit}{around}"
