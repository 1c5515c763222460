"""What reports would run, before they run: the dry run, the list of all reports, models that are out of reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.table import Table

from bench.dry_run.plan import config_folder, duration, show_plan
from bench.reports.overrides import Selection
from methods.engine.source import Source
from results.reports.axes import pairs_of
from results.reports.published import published_value

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.reports.plan import Plan
    from bench.run.session import Session
    from results.reports.spec import AnyReport

COLUMNS = ("report", "title", "run by", "scales", "points")


def show_cells(plans: Sequence[Plan], session: Session) -> None:
    """Print what the reports would run."""
    points = [(" / ".join(coords), cell, published_value(plan.spec, coords, "tau"))
              for plan in plans for coords, cell in plan.cells.items()]
    labels, cells, taus = zip(*points, strict=True)
    show_plan(cells, labels, session, taus, {name for plan in plans for name in plan.traced()})
    left_out = Counter(reason for plan in plans for reason in (plan.absent | plan.refused).values())
    for reason, count in left_out.items():
        session.print(f"left out: {count} point{'s' * (count > 1)}: {reason}", markup=False, soft_wrap=True)


def show_reports(reports: Iterable[AnyReport], overrides: Sequence[str], session: Session) -> None:
    """Print a line for each report: its title, which command runs it, its scales, and how many points it has in the
    edition that `overrides` choose. No point is composed: that takes torch."""
    chosen = Selection.from_overrides(overrides)
    edition = f"pair={','.join(chosen.pairs)}" if chosen.pairs else f"scale={chosen.scale}"
    table = Table(*COLUMNS, title=f"reports; points of {edition}", title_justify="left")
    for report in reports:
        scales = ", ".join(scale for scale, names in pairs_of(report.axes).items() if names) or "any"
        run_by = "its name, every" if report.on_request else "its name, every, all"
        has_edition = report.has_edition(chosen.pairs, chosen.scale)
        points = str(len(list(chosen.edition(report).points()))) if has_edition else "–"
        table.add_row(report.name, report.title, run_by, scales, points)
    session.print(table)
    session.print("report=all (make tables) runs those marked all, report=every those marked every. report=NAME "
                  "dry_run=true says what one takes and lacks", soft_wrap=True)


def announce(plans: Sequence[Plan], session: Session) -> None:
    """Print how many points of these reports are missing, and what they take at most, before any is measured."""
    cells = {(cell.name, cell.n, cell.timed): cell for plan in plans for cell in plan.all_cells()}.values()
    traced = {name for plan in plans for name in plan.traced()}
    if missing := [cell for cell in cells if not session.is_complete(cell, traced)]:
        time = duration([(cell, None) for cell in missing])
        session.print(f"missing: {len(missing)} of {len(cells)} points; they take {time} of one core at most. An "
                      "interrupted run resumes", soft_wrap=True)


def reachable(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """The plans, with the cells whose models are neither here nor on a hub that answers among those `absent`."""
    found = {}
    for name, plan in plans.items():
        faults = {coords: fault for coords, cell in plan.cells.items() if (fault := out_of_reach(cell))}
        cells = {coords: cell for coords, cell in plan.cells.items() if coords not in faults}
        found[name] = replace(plan, cells=cells, absent=plan.absent | faults)
    return found


def out_of_reach(cell: Cell) -> str:
    """Which model of the cell can be had neither here nor from the hub, and why; empty where all can."""
    for role in cell.roles:
        checkpoint = cell.pair.checkpoint(role)
        folder = "" if Source.of(checkpoint.source).is_gguf else config_folder(checkpoint.source, checkpoint.revision)
        if isinstance(folder, str) and folder:
            return f"pair.{role}={checkpoint.source}: {folder}"
    return ""
