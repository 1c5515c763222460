"""What a command tells its tracker: how far its cells are while they are decoded, then their results and its reports.

The tracker's client runs in threads, so that a service that is broken, slow or away costs one warning and a limited
time, after which the command does not try again. Nothing is sent while cells are timed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bench.run.timed_pass import machine_lock as machine
from bench.run.trackers.answers import coloured_answers, row_of
from bench.run.trackers.runs import About, Results, TrackerRun
from results.metrics.so_far import SoFar
from results.store.cells import Store
from results.store.errors import StoreError
from results.store.reasons import one_line

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import ProjectTracker, Settings
    from bench.run.requested_cell import RequestedCell
    from results.metrics.summary import Summary
    from results.store.cells import CellFolder

log = logging.getLogger(__name__)
EVERY_S = 5.0
"""Seconds between two looks at the cells that are being decoded."""
MOST_OPEN = 8
"""Runs that are kept open for what comes; the one that was opened first is ended before another is opened."""


class Logbook:
    """The runs of one command. Without a tracker every method does nothing."""

    def __init__(self, settings: Settings) -> None:
        self._name, self._store = settings.tracker.name, settings.store.dir
        self._folder = settings.output.dir.absolute()
        self._options = cast("ProjectTracker", settings.tracker.options)
        self._groups: dict[str, str] = {}
        self._open: dict[str, TrackerRun] = {}
        self._given_up = threading.Event()

    def group(self, report: str, cells: Iterable[Cell]) -> None:
        """These cells are asked for by a report; of several reports that ask for a cell the first names its group."""
        for cell in cells:
            self._groups.setdefault(cell.name, report)

    @property
    def is_open(self) -> bool:
        """Whether a tracker is asked for and has not failed."""
        return self._name != "none" and not self._given_up.is_set()

    @contextmanager
    def following(self, cells: Sequence[Cell]) -> Iterator[None]:
        """Log how far these cells are while the body runs."""
        if not self.is_open:
            yield
            return
        store, ended = Store(self._store), threading.Event()
        seen: dict[str, tuple[SoFar, float | None]] = {
            name: (so_far(store.cell(name)), None) for name in dict.fromkeys(cell.name for cell in cells)}
        thread = self._start("progress", lambda: self._follow(store, seen, ended))
        try:
            yield
        finally:
            ended.set()
            self._await("progress", thread)

    def _follow(self, store: Store, seen: dict[str, tuple[SoFar, float | None]], ended: threading.Event) -> None:
        """Log each cell that has more answers than at the look before, whoever decodes it, here or on other machines,
        until `ended`, but not while something is timed on this machine."""
        last = False
        while not last:
            last = ended.wait(EVERY_S)
            if machine.is_timing() and not last:
                continue
            for name, (before, at) in seen.items():
                folder = store.cell(name)
                now, current = time.monotonic(), so_far(folder)
                if current.answers <= before.answers or current.tau is None:
                    continue
                values = {"prompts": float(current.answers), "tau": current.tau}
                if at is not None:
                    values["tokens_per_s"] = (current.tokens - before.tokens) / (now - at)
                seen[name] = current, now
                self._run(self._about(folder)).live(values)

    def log_cell(self, folder: RequestedCell, summary: Summary) -> None:
        """A complete cell: its configuration, its metrics and its answers."""
        def results() -> Results:
            metrics = {name: value for name, value in summary.plain().items() if value is not None}
            records = folder.compared()
            return Results(metrics, [row_of(record) for record in records],
                           coloured_answers(folder, records[:self._options.answers]))

        self._log(folder.key, lambda: self._about(folder), results)

    def log_report(self, name: str, title: str, command: str, files: Sequence[Path], group: str | None = None) -> None:
        """The tables (.csv) and figures (.png) of a report or sweep; `group`: that of its cells, if not `name`."""
        kinds = {suffix: {file.stem: file for file in files if file.suffix == suffix} for suffix in (".csv", ".png")}
        tables = {f"{stem}_numbers" if stem in kinds[".png"] else stem: file for stem, file in kinds[".csv"].items()}
        about = About(f"report-{name}", "report", group or name, {"name": name, "title": title, "command": command},
                      self._folder)
        self._log(about.id, lambda: about, lambda: Results(tables=tables, images=kinds[".png"]))

    def _about(self, folder: CellFolder) -> About:
        return About(folder.key, "cell", self._groups.get(folder.key), folder.config() or {}, self._folder)

    def _run(self, about: About) -> TrackerRun:
        """The open run of this id, or a new one."""
        if about.id not in self._open:
            while len(self._open) >= MOST_OPEN:
                self._open.pop(next(iter(self._open))).finish()
            self._open[about.id] = TrackerRun(self._name, about, self._options)
        return self._open[about.id]

    def _log(self, what: str, about: Callable[[], About], results: Callable[[], Results]) -> None:
        """Log results and end their run."""
        def work() -> None:
            run, made = self._run(about()), results()
            if not run.holds(made.digest):
                run.log(made)
            self._open.pop(what).finish()

        if self.is_open:
            self._await(what, self._start(what, work))

    def _start(self, what: str, work: Callable[[], None]) -> threading.Thread:
        """Do the work in a thread of its own; the first failure ends all logging."""
        def guarded() -> None:
            try:
                work()
            except Exception as error:  # whatever the client raises, the results are in the store
                self._give_up(what, f"{type(error).__name__}: {one_line(error)}")
                self._abandon()

        thread = threading.Thread(target=guarded, daemon=True, name=f"{self._name} {what}")
        thread.start()
        return thread

    def _await(self, what: str, thread: threading.Thread) -> None:
        patience = 2 * self._options.timeout  # once for the connection, which gives up by itself, once for the data
        thread.join(patience)
        if thread.is_alive():
            self._give_up(what, f"no answer within {patience:g} s")

    def _abandon(self) -> None:
        """End the runs that are open, so that a later command of this process can resume them."""
        while self._open:
            with suppress(Exception):  # the reason was given
                self._open.popitem()[1].finish()

    def _give_up(self, what: str, reason: str) -> None:
        if not self._given_up.is_set():
            self._given_up.set()
            log.warning("%s: logging disabled from %s onward (%s); all results are in the store", self._name, what,
                        reason)


def so_far(folder: CellFolder) -> SoFar:
    """The answers in a folder; none in one that cannot be read, which the pass that needs it reports."""
    try:
        return SoFar.of(folder.good_samples())
    except StoreError:
        return SoFar()
