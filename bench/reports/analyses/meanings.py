"""Analyses that single figures and tables need after their cells are measured: audits of a bound, and comparisons of
answers by models that compare meanings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from bench.reports.analyses import AGREEMENT, COVERAGE
from bench.reports.analyses.agreement import Models
from results.reports.figures import Agreement, Matrices
from results.store.errors import one_line

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.reports.plan import Plan
    from bench.run.session import Session


def audit(plans: Iterable[Plan], session: Session) -> None:
    """Check the bound of every traced cell of the reports that show how often it holds, once."""
    bounded = [plan for plan in plans if COVERAGE in plan.spec.metrics()]
    if folders := [session.folder(cell) for plan in bounded for cell in plan.cells.values()]:
        from bench.reports.analyses.bound import audit_cells

        audit_cells(folders, session.engines.lab)


def compare_meanings(plan: Plan, session: Session) -> int:
    """Compare the answers of a report that shows how alike they are, by the models of `similarity`. Returns 1 where
    that failed, else 0."""
    @cache
    def models(device: str) -> Models:
        return Models(session.settings.similarity, device)

    figure = plan.spec.figure if plan.spec.kind == "figure" else None
    measured = {cell.name for cell in plan.cells.values() if session.compared(cell) is not None}
    if isinstance(figure, Matrices):
        from bench.reports.analyses.path_similarity import compare_paths

        groups = [group for names in plan.groups(figure.paths)
                  if (group := [cell for cell in names if cell.name in measured])]
        return _each(lambda group: compare_paths(group, session, models(group[0].engine.device)), groups)
    if isinstance(figure, Agreement):
        from bench.reports.analyses.continuations import continue_rejected

        cells = [cell for cell in plan.cells.values() if cell.name in measured]
        return _each(lambda cell: continue_rejected(cell, session, models(cell.engine.device)), cells)
    return 0


def agreement_of(cell: Cell, session: Session) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """What was compared of a cell: measure -> series -> numbers; empty where nothing was."""
    return (session.folder(cell).record(AGREEMENT) or {}).get("values", {})


def _each(work: Callable[[Any], None], parts: Sequence[Any]) -> int:
    """Do the work on each part; 1 where one failed, with a line on the error stream."""
    status = 0
    for part in parts:
        try:
            work(part)
        except ValueError as error:  # a model that cannot be used, a record that cannot be read
            print(f"failed: {one_line(error)}", file=sys.stderr)
            status = 1
    return status
