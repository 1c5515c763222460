"""Print the end-of-run report: results table, one line per failure, exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from bench.run.console import console
from bench.run.requested_cell import requested_cell
from results.metrics.tau_gain import findings
from results.store.errors import StoreError
from results.store.reasons import one_line
from results.store.sample import FailedSample

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.requested_cell import RequestedCell
    from bench.run.session import Session
    from results.metrics.summary import Summary
    from results.store.cells import Store


def print_outcome(cells: Sequence[Cell], labels: Sequence[str], session: Session) -> int:
    """Print the results table, the gains of relaxed rules over lossless ones, the failures and, with summary=json, the
    summaries. Returns the exit status: 0 if every cell is complete."""
    columns = ("point", "τ", "acceptance", "speedup", "accuracy", "tokens/s", "n")
    table = Table(*columns, title=f"results in {session.store.root}", title_justify="left")
    summaries = [(label, session.compared(cell)) for cell, label in zip(cells, labels, strict=True)]
    for label, summary in summaries:
        table.add_row(label, *_figures(summary))
    console().print(table)
    for line in findings([(label, summary) for label, summary in summaries if summary is not None]):
        console().print(f"- {line}", highlight=False, markup=False)
    whole = [(cell, label) for cell, (label, summary) in zip(cells, summaries, strict=True) if summary is not None]
    for line in _clocks(whole, session.store):
        console().print(line, highlight=False, markup=False, soft_wrap=True)
    status = print_failures(cells, session)
    if session.settings.summary == "json":
        print_summaries(cells, session)
    return status


def _clocks(cells: Sequence[tuple[Cell, str]], store: Store) -> list[str]:
    """A line for points of one baseline that were timed in different measuring sessions."""
    sessions: dict[str, dict[str, list[str]]] = {}
    for cell, label in cells:
        if began := " and ".join(sorted({row.started for row in requested_cell(cell, store).timed()})):
            sessions.setdefault(cell.baseline().name, {}).setdefault(began, []).append(label)
    lines = []
    for held in sessions.values():
        if len(held) > 1:
            timed = "; ".join(f"{began}: {', '.join(names)}" for began, names in held.items())
            lines.append(f"warning: timed at different times, so their speeds do not compare: {timed}. fresh=true "
                         "times all anew, in one session")
    return lines


def print_failures(cells: Sequence[Cell], session: Session, others: Mapping[str, str] | None = None) -> int:
    """Print one line on stderr per incomplete cell and entry of `others`, name -> reason. Returns 1 if any, else 0."""
    problems = {cell.name: problem for cell in cells
                if (problem := status_problem(requested_cell(cell, session.store)))}
    for cell in cells if session.settings.trace is True else ():
        if cell.name not in problems and (reason := session.trace_failure(cell)):
            problems[cell.name] = reason
    problems |= others or {}
    for name, problem in problems.items():
        print(f"failed: {name}: {one_line(problem)}", file=sys.stderr)
    return 1 if problems else 0


def print_summaries(cells: Sequence[Cell], session: Session) -> None:
    """Print one JSON line per cell (summary=json) at the end of the standard output."""
    for cell in cells:
        summary = session.compared(cell)
        print(json.dumps({"cell": cell.name, "error": session.problem(cell)} if summary is None else summary.plain()))


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
        return None
    return f"{len(failed)} of {len(records)} prompts failed; first {failed[0].id}: {failed[0].error}"


def _figures(summary: Summary | None) -> list[str]:
    if summary is None:
        return ["—"] * 6
    return [_number(summary.tau, ".2f"), _number(summary.acceptance_rate, ".1%"),
            _number(summary.speedup, ".2f", "×", summary.speedup_ci95),
            _number(summary.accuracy, ".1%", "", summary.accuracy_ci95), _number(summary.tokens_per_s, ".1f"),
            f"{summary.n}" + (f" ({summary.failed} failed)" if summary.failed else "")]


def _number(value: float | None, form: str, unit: str = "", interval: Sequence[float] | None = None) -> str:
    if value is None:
        return "—"
    around = f" [{interval[0]:{form}}, {interval[1]:{form}}]" if interval else ""
    return f"{value:{form}}{unit}{around}"
