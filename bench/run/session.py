"""The cells of one command: completed, read back and printed."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn

from rich.table import Table

from bench.config.errors import ConfigError
from bench.run.console import console
from bench.run.cost_clock import PricedCell
from bench.run.related_cells import GAINS, compared_summary, over_lossless
from bench.run.requested_cell import RequestedCell, folder_of
from bench.run.trackers import Logbook
from results.metrics.delta import Between, between
from results.metrics.distortion import judged_at
from results.store.cells import CellFolder, Store
from results.store.errors import StoreError, one_line
from results.store.files import check_writable
from results.store.sample import FailedSample
from results.store.traces import TraceFolder

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Settings
    from bench.run.engine import Engines
    from results.metrics.summary import Summary

log = logging.getLogger(__name__)
MANY_UNSCORED = 100
"""Answers of one task that are not stored without a score unless `score=later` says so."""


@dataclass(frozen=True, slots=True)
class CellState:
    """What a store holds of a cell.

    done         prompts with an answer, where some are missing
    is_measured  nothing is missing, traces apart
    is_untraced  traces are missing that are read, so that its answers are decoded again
    """

    done: int
    is_measured: bool
    is_untraced: bool

    @property
    def is_complete(self) -> bool:
        return self.is_measured and not self.is_untraced

    def __str__(self) -> str:
        if self.is_measured:
            return "not traced" if self.is_untraced else "complete"
        return f"{self.done} prompt{'s' if self.done > 1 else ''} done" if self.done else "nothing"


class Session:
    """What all cells of a command share. Models are imported and loaded when the first cell runs.

    settings  where results go and how they are shown.
    store     the cells' folders; each samples file is read once.
    logbook   what the tracker is told.
    summaries what `compared` has given; to be cleared when a cell has changed.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings, self.store = settings, Store(settings.store.dir)
        self.logbook = Logbook(settings)
        self.summaries: dict[str, Summary | None] = {}

    @cached_property
    def engines(self) -> Engines:
        """The engines, with the models loaded so far."""
        from bench.run.engine import Engines

        return Engines()

    def check(self, cells: Sequence[Cell], output: str | None = None) -> None:
        """Raises StoreError for a file of these cells or of their baselines that cannot be read;
        where one of them is incomplete, for a store that cannot be written; and for the folder
        `output` of output.dir, if the command writes one. Raises ConfigError as `check_scores`."""
        asked = {(cell.name, cell.n): cell for cell in cells}.values()
        for folder in self._folders([*asked, *(cell.baseline() for cell in asked)]):
            folder.check()
        if not all(self.folder(cell).is_complete() for cell in asked):
            self.check_scores(asked)
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
        for cell in (each for asked in cells for each in (asked.baseline(), asked)):
            if fault := cell.load_task().unscorable():
                folder = self.folder(cell)
                answers = missing.setdefault(f"task={cell.task.name}: {fault}", set())
                answers |= {(cell.name, prompt) for prompt in folder.ids - folder.by_id().keys()}
        for fault, answers in missing.items():
            if len(answers) >= MANY_UNSCORED:
                raise ConfigError(
                    f"{fault}; {len(answers)} answers would be stored without a score: score=later "
                    "allows it, and the same command scores them on a machine that can"
                )

    def complete(
        self,
        cells: Sequence[Cell],
        traced: Collection[str] = (),
        shown: Collection[str] = (),
        sessions: int = 1,
    ) -> None:
        """Measure and trace what is missing, then write the summaries. What fails is recorded in
        the cells' folders; the tracker gets the results. `traced` and `shown` are as in
        `run_cells`; `sessions`: measuring sessions where the command names no number. Where another
        one is due this process begins anew and does not return."""
        from bench.run.launch import run_cells

        sessions = self.settings.sessions or sessions
        before = 0 if self.settings.fresh else self._timings(cells)
        run_cells(cells, self.settings, self.store, self.engines, traced, shown, sessions)
        if (
            sessions > 1
            and self._timings(cells) > before
            and not all(self.is_complete(cell) for cell in cells)
        ):
            self._begin_anew()
        self.summaries.clear()
        self.__dict__.pop("sessions_of_store", None)
        baselines = [cell.baseline().replace(timed=0) for cell in cells]
        for cell in {cell.name: cell for cell in (*baselines, *cells)}.values():
            self.write_summary(cell)
        for cell in cells:
            if self.logbook.is_open and (summary := self.compared(cell)) is not None:
                self.logbook.log_cell(self.folder(cell), summary)

    def _timings(self, cells: Sequence[Cell]) -> int:
        """How many timings of prompts the cells' folders hold; a file that cannot be read has none,
        as its cell says by itself."""
        rows = 0
        for folder in self._folders(cell for cell in cells if cell.timed_prompts):
            with suppress(StoreError):
                rows += len(folder.timed())
        return rows

    def _folders(self, cells: Iterable[Cell]) -> Collection[CellFolder]:
        """The folders of these cells, each once."""
        folders = (folder_of(cell, self.store) for cell in cells)
        return {folder.key: folder for folder in folders}.values()

    def _begin_anew(self) -> NoReturn:
        """The next measuring session: a process of its own, some minutes later. What is timed
        stays."""
        gap = self.settings.sessions_gap_s
        self.print(f"the next measuring session begins in {gap:g} s")
        time.sleep(gap)
        words = [word for word in sys.argv[1:] if word.lstrip("+-").partition("=")[0] != "fresh"]
        os.execv(sys.executable, [sys.executable, "-m", "bench", *words])

    def folder(self, cell: Cell) -> RequestedCell:
        """The cell's folder, restricted to the prompts that the cell asks for; with `cost`, on that
        machine."""
        if self.settings.cost is None:
            return RequestedCell(cell, self.store)
        return PricedCell(cell, self.store, self.settings.cost)

    def judged_at(self, cell: Cell, summary: Summary, temperature: float) -> Summary:
        """The summary with what the cell gains over lossless decoding at another temperature than
        its own. Raises StoreError."""
        summary = summary.with_values(
            **judged_at(summary.sums.get("distortion_least"), temperature)
        )
        return summary.with_later(GAINS, partial(over_lossless, cell, self.store, temperature))

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
        """The summary of the prompts asked for, with the metrics that compare cells. Raises
        StoreError."""
        key = f"{cell.name} {cell.n} {cell.timed} {getattr(cell.task.options, 'pass_at', 1)}"
        if key not in self.summaries:
            self.summaries[key] = compared_summary(cell, self.store, self.folder, self.between)
        return self.summaries[key]

    def write_summary(self, cell: Cell) -> None:
        """Write summary.json for other programs, where the cell's files are younger than it.
        Nothing reads it back."""
        folder = RequestedCell(cell, self.store)
        try:
            if folder.is_complete() and not folder.has_latest_summary():
                folder_of = partial(RequestedCell, store=self.store)
                summary = compared_summary(cell, self.store, folder_of, self.sessions_of_store)
                folder.write_summary({} if summary is None else summary.plain())
        except StoreError as error:  # its failure is listed; the others are written
            log.warning("%s: no summary.json: %s", folder.key, error)

    def is_complete(self, cell: Cell, traced: Collection[str] = ()) -> bool:
        """Whether nothing of the cell is missing, its traces included if it is one of `traced`; a
        file that cannot be read counts as missing."""
        try:
            return self.folder(cell).is_complete() and not self._lacks_traces(cell, traced)
        except StoreError:  # the pass that reads the file records why
            return False

    def state(self, cell: Cell, traced: Collection[str] = ()) -> CellState:
        """What the store holds of the cell. `traced`: names of the cells whose traces are read.
        Raises StoreError."""
        folder = self.folder(cell)
        if folder.measured() is None or self.problem(cell) is not None:
            return CellState(len(folder.good_samples()), is_measured=False, is_untraced=False)
        return CellState(0, is_measured=True, is_untraced=self._lacks_traces(cell, traced))

    def _lacks_traces(self, cell: Cell, traced: Collection[str]) -> bool:
        if self.settings.trace is not True and cell.name not in traced:
            return False
        folder = self.folder(cell)
        return not folder.by_id().keys() <= TraceFolder(folder).covered()

    def problem(self, cell: Cell) -> str | None:
        """Why the cell is incomplete, in one line; None when it is complete."""
        return status_problem(self.folder(cell))

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
        for line in _clocks(zip(cells, summaries, strict=True), self.store):
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
            problem = status_problem(RequestedCell(cell, self.store))
            if problem is None and self.settings.trace is True:
                problem = self.trace_failure(cell)
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


def _clocks(
    cells: Iterable[tuple[Cell, tuple[str, Summary | None]]], store: Store
) -> Iterator[str]:
    """A line for measured points of one baseline that were timed in different measuring
    sessions."""
    baselines: dict[str, dict[str, list[str]]] = {}
    for cell, (label, summary) in cells:
        started = {row.started for row in RequestedCell(cell, store).timed()} if summary else ()
        if started:
            sessions = baselines.setdefault(cell.baseline().name, {})
            sessions.setdefault(" and ".join(sorted(started)), []).append(label)
    for sessions in baselines.values():
        if len(sessions) > 1:
            timed = "; ".join(f"{began}: {', '.join(names)}" for began, names in sessions.items())
            yield (
                f"warning: timed at different times, so their speeds do not compare: {timed}. "
                "fresh=true times all anew, in one session"
            )


def status_problem(folder: RequestedCell) -> str | None:
    """Why a cell is incomplete, in one line; None when it is complete."""
    try:
        if reason := folder.failure():
            return reason
        records = folder.measured()
        if records is None and not folder.path.exists():
            return "was not run"
        if records is None:
            with folder.lock():  # raises, naming the process that holds it
                return "was not finished"
    except StoreError as error:
        return str(error)
    failed = [record for record in records if isinstance(record, FailedSample)]
    if not failed:
        reason = folder.baseline.failure() or "answers without a score"
        return reason if folder.lacks_scores(records) else None
    return (
        f"{len(failed)} of {len(records)} prompts failed; first {failed[0].id}: {failed[0].error}"
    )


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
